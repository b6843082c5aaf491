package enforce_test

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// TestNeeded is over resources that are a patient's because others are.
func TestNeeded(t *testing.T) {
	t.Parallel()
	binary := func(id, context string) string {
		return `{"resourceType":"Binary","id":"` + id + `","securityContext":{"reference":"` + context + `"}}`
	}
	both := access.Holder{Scope: "patient/*.r user/*.r", Patient: "a", User: interaction.Reference{Type: "Patient", ID: "b"}, UserPatient: "b"}
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

// TestProvenanceOfTwo checks that a Provenance which names another's record beside an own one reaches neither.
func TestProvenanceOfTwo(t *testing.T) {
	t.Parallel()
	provenance := func(id, first, second string) string {
		return `{"resourceType":"Provenance","id":"` + id + `","target":[{"reference":"` + first + `"},{"reference":"` + second + `"}]}`
	}
	g := newGateway(t, append(slices.Clone(writable), provenance("own", "Patient/a", "Observation/a1"), provenance("patients", "Patient/a", "Patient/b"),
		provenance("record", "Patient/a", "Observation/b1"), provenance("records", "Observation/a1", "Observation/b1"))...)
	for id, want := range map[string]int{"own": 200, "patients": 404, "record": 404, "records": 404} {
		for _, at := range []string{"", "/_history/1", "/_history"} {
			if got := g.get(patientA, "Provenance/"+id+at).StatusCode; got != want {
				t.Errorf("%s%s: %d", id, at, got)
			}
		}
	}
	for _, target := range []string{"Provenance?patient=Patient/a", "Observation?_id=a1&_revinclude=Provenance:target", "Patient?_revinclude=Provenance:target"} {
		body, _ := io.ReadAll(g.get(patientA, target).Body)
		if text := string(body); !strings.Contains(text, `"own"`) || strings.Contains(text, `"patients"`) || strings.Contains(text, `"record"`) || strings.Contains(text, `"records"`) {
			t.Errorf("%s: %s", target, text)
		}
	}
}
