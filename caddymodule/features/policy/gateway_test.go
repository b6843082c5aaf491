package policy_test

import (
	"net/http"
	"os"
	"testing"

	_ "github.com/caddy-fhir/caddy-fhir/caddymodule"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
)

func TestMain(m *testing.M) { os.Exit(gatewaytest.Main(m)) }

// The standard build enforces the rules in a Caddyfile.
func TestGateway(t *testing.T) {
	t.Parallel()
	backend := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/fhir+json")
		_, _ = w.Write([]byte(`{"resourceType":"Patient","id":"1"}`))
	})
	for _, tt := range []struct {
		name, rule, method string
		status             int
	}{
		{"deny", `deny patients "request.type == 'Patient'"`, http.MethodGet, http.StatusForbidden},
		{"deny a resource", `deny one "resource.id == '1'"`, http.MethodGet, http.StatusNotFound},
		{"deny another resource", `deny "resource.id == '2'"`, http.MethodGet, http.StatusOK},
		{"allow", `allow "request.interaction == 'delete' && token.subject == 'alice'"`, http.MethodDelete, http.StatusOK},
		{"allow another user", `allow "request.interaction == 'delete' && token.subject == 'bob'"`, http.MethodDelete, http.StatusForbidden},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := gatewaytest.Example(t, backend, "fhir_bearer\n", "fhir_bearer {\n\t\t\t"+tt.rule+"\n\t\t}\n")
			if response := g.Do(tt.method, "/fhir/R4/Patient/1", "", "Authorization", "Bearer "+g.Token()); response.StatusCode != tt.status {
				t.Errorf("status %d, want %d: %.300s", response.StatusCode, tt.status, gatewaytest.ReadBody(t, response))
			}
		})
	}
}
