package enforce_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/access"
)

// TestPoliciesWrite checks that rules judge what is stored and what is to be.
func TestPoliciesWrite(t *testing.T) {
	t.Parallel()
	const (
		ofA = `{"resourceType":"Observation","id":"a1","status":"amended","subject":{"reference":"Patient/a"}}`
		ofB = `{"resourceType":"Observation","id":"b1","status":"final","subject":{"reference":"Patient/b"}}`
	)
	for _, tt := range []struct {
		name           string
		holder         access.Holder
		rules          string
		method, target string
		body           string
		status         int
	}{
		{"create", clinician, "deny resource.status == 'final'", "POST", "Observation", ofA, 201},
		{"create denied", clinician, "deny resource.status == 'amended'", "POST", "Observation", ofA, 403},
		{"create denied, bound", patientA, "deny resource.status == 'amended'", "POST", "Observation", ofA, 403},
		{"create allowed", nobody, "allow request.interaction == 'create'", "POST", "Observation", ofB, 201},
		{"create allowed by the resource", patientA, "allow resource.subject.reference == 'Patient/b'", "POST", "Observation", ofB, 201},
		{"create not allowed by the resource", patientA, "allow resource.status == 'draft'", "POST", "Observation", ofB, 403},
		{"update", clinician, "deny resource.status == 'draft'", "PUT", "Observation/a1", ofA, 200},
		{"update to what is denied", clinician, "deny resource.status == 'amended'", "PUT", "Observation/a1", ofA, 403},
		{"update of what is withheld", clinician, "deny resource.status == 'final'", "PUT", "Observation/a1", ofA, 404},
		{"update beyond one's compartment", patientA, "allow resource.subject.reference == 'Patient/b'", "PUT", "Observation/b1", ofB, 200},
		{"delete", clinician, "deny resource.status == 'draft'", "DELETE", "Observation/a1", "", 204},
		{"delete denied", clinician, "deny request.method == 'DELETE'", "DELETE", "Observation/a1", "", 403},
		{"delete of what is withheld", clinician, "deny resource.status == 'final'", "DELETE", "Observation/a1", "", 404},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, records...).withRules(strings.Split(tt.rules, ";")...)
			r := httptest.NewRequest(tt.method, "/fhir/R4/"+tt.target, strings.NewReader(tt.body))
			r.Header.Set("Content-Type", "application/fhir+json")
			if got := g.send(tt.holder, r); got.StatusCode != tt.status {
				said, _ := io.ReadAll(got.Body)
				t.Errorf("status %d, want %d: %s", got.StatusCode, tt.status, said)
			}
		})
	}
}

// TestPoliciesHistory checks that each version is judged.
func TestPoliciesHistory(t *testing.T) {
	t.Parallel()
	g := newGateway(t, records...).withRules("deny resource.status == 'final'")
	g.server.Put(`{"resourceType":"Observation","id":"a1","status":"amended","subject":{"reference":"Patient/a"}}`)
	var b bundle
	if err := json.NewDecoder(g.get(reader, "Observation/a1/_history").Body).Decode(&b); err != nil || len(b.Entry) != 1 {
		t.Errorf("got %+v, %v", b, err)
	}
	for _, target := range []string{"Observation/_history", "_history"} {
		if got := g.get(reader, target); got.StatusCode != http.StatusForbidden {
			t.Errorf("%s: status %d", target, got.StatusCode)
		}
	}
}
