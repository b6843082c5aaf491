package enforce_test

import (
	"net/http"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// TestNeeded is over resources that are a patient's because others are.
func TestNeeded(t *testing.T) {
	t.Parallel()
	binary := func(id, context string) string {
		return `{"resourceType":"Binary","id":"` + id + `","securityContext":{"reference":"` + context + `"}}`
	}
	both := access.Holder{Scope: "patient/Binary.r user/Binary.r", Patient: "a", User: interaction.Reference{Type: "Patient", ID: "b"}, UserPatient: "b"}
	resources := append([]string{
		binary("patient", "Patient/a"), binary("record", "Observation/a1"), binary("another", "Observation/b1"),
		binary("binary", "Binary/record"), binary("nothing", "Observation/none"), binary("shared", "Practitioner/alice"),
		binary("swapped", "Observation/swapped"), binary("unheard", "Unheard/a1"), binary("dots", "Observation/.."),
	}, records...)
	for _, tt := range []struct {
		name, target string
		holder       access.Holder
		status       int
	}{
		{"the patient's", "patient", patientA, 200},
		{"a record's", "record", patientA, 200},
		{"another's record's", "another", patientA, 404},
		{"what depends on another in turn", "binary", patientA, 404},
		{"what is not there", "nothing", patientA, 404},
		{"what is everybody's", "shared", patientA, 200},
		{"what the server has swapped", "swapped", patientA, 404},
		{"a type that FHIR does not have", "unheard", patientA, 404},
		{"a dot segment", "dots", patientA, 404},
		{"a record of the other of two patients", "another", both, 200},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, resources...)
			own := answering(`{"resourceType":"Observation","id":"a1","subject":{"reference":"Patient/a"}}`)
			g.server.Answers = map[string]http.HandlerFunc{"Observation/swapped": own, "Unheard/a1": own, "Observation/..": own, "Observation": own}
			if got := g.get(tt.holder, "Binary/"+tt.target); got.StatusCode != tt.status {
				t.Errorf("status %d, want %d", got.StatusCode, tt.status)
			}
		})
	}
}
