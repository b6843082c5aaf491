package enforce_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
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

// TestPoliciesBatch checks that rules judge each entry of a batch as a request of its own, and a transaction with it.
func TestPoliciesBatch(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, kind, rule, want string }{
		{"withheld", "batch", "deny request.type == 'Patient' && resource.id == 'b'", "200 404"},
		{"denied", "batch", "deny request.id == 'b'", "200 403"},
		{"denied as a whole", "batch", "deny request.interaction == 'bundle'", "403"},
		{"denied in a transaction", "transaction", "deny request.id == 'b'", "403"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, records...).withRules(tt.rule)
			body := `{"resourceType":"Bundle","type":"` + tt.kind + `","entry":[{"request":{"method":"GET","url":"Patient/a"}},{"request":{"method":"GET","url":"Patient/b"}}]}`
			r := httptest.NewRequest(http.MethodPost, "/fhir/R4", strings.NewReader(body))
			r.Header.Set("Content-Type", "application/fhir+json")
			response := g.send(clinician, r)
			var b struct {
				Entry []struct{ Response struct{ Status string } }
			}
			var statuses []string
			if json.NewDecoder(response.Body).Decode(&b) == nil {
				for _, e := range b.Entry {
					statuses = append(statuses, e.Response.Status[:3])
				}
			}
			if len(statuses) == 0 {
				statuses = []string{strconv.Itoa(response.StatusCode)}
			}
			if got := strings.Join(statuses, " "); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}
