package enforce_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
)

// A type that no compartment has can be opened to the patient whom its parameter patient names.
func TestOwnPatient(t *testing.T) {
	t.Parallel()
	task := func(id, patient string) string {
		return `{"resourceType":"Task","id":"` + id + `","status":"requested","intent":"order","for":{"reference":"Patient/` + patient + `"}}`
	}
	g := newGateway(t, append([]string{task("ta", "a"), task("tb", "b")}, records...)...)
	if got := g.foundOrStatus(patientA, "Task"); got != "403" {
		t.Errorf("without the rule: %s", got)
	}
	g.Shared = access.NewShared(access.Shared{"Task": access.RuleNamed("patient")})
	for target, want := range map[string]string{
		"Task": "Task/ta", "Task?_id=tb": "", "Task?patient=Patient/b": "", "Patient/a/Task": "Task/ta", "Patient/b/Task": "", "Task?_summary=count": "403",
	} {
		if got := g.foundOrStatus(patientA, target); got != want {
			t.Errorf("%s: %s, want %s", target, got, want)
		}
	}
	for _, tt := range []struct {
		method, id, patient string
		want                int
	}{
		{http.MethodGet, "ta", "", 200}, {http.MethodGet, "tb", "", 404}, {http.MethodPut, "ta", "a", 200}, {http.MethodPut, "ta", "b", 403},
		{http.MethodPut, "tb", "a", 404}, {http.MethodDelete, "tb", "", 404}, {http.MethodDelete, "ta", "", 204},
	} {
		r := httptest.NewRequest(tt.method, "/fhir/R4/Task/"+tt.id, strings.NewReader(task(tt.id, tt.patient)))
		r.Header.Set("Content-Type", "application/fhir+json")
		if response := g.send(patientA, r); response.StatusCode != tt.want {
			t.Errorf("%s %s for %s: %d, want %d", tt.method, tt.id, tt.patient, response.StatusCode, tt.want)
		}
	}
}
