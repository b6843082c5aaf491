package fhirapp

import (
	"net/http"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
)

// documented is a block of a document, by what it begins with.
func documented(t *testing.T, document, begin string) string {
	t.Helper()
	text := gatewaytest.ReadFile(t, "../../docs/"+document)
	_, rest, ok := strings.Cut(text, "\n"+begin)
	block, _, closed := strings.Cut(rest, "```")
	if !ok || !closed {
		t.Fatalf("%s has no %q", document, begin)
	}
	return begin + block
}

// The people of the example, and the clinician of docs/sandbox.md, see as much as is said of them.
func TestDemoPeople(t *testing.T) {
	t.Setenv("FHIR_BACKEND", "")
	with := gatewaytest.ExampleText(t, "\t\tclient demo-app {", documented(t, "sandbox.md", "user bruno {")+"\t\tclient demo-app {",
		"\t\tfhir_bearer\n", "\t\tfhir_bearer {\n"+documented(t, "sandbox.md", "deny bruno")+"}\n")
	g := newGateway(t, string(caddyfile.Format([]byte(with))))
	for user, want := range map[string]map[string]int{
		"alice": {"Patient": 30, "Condition?patient=p02": 1},
		"nora":  {"Patient": 1, "Patient/p01": http.StatusOK, "Patient/p02": http.StatusNotFound},
		"robin": {"Patient": 1, "Patient/p23": http.StatusOK, "Patient/p24": http.StatusNotFound},
		"bruno": {"Patient": 10, "Patient/p02": http.StatusOK, "Patient/p01": http.StatusNotFound, "Condition?patient=p02": 0, "Encounter?patient=p02": 1},
	} {
		request := gatewaytest.DemoRequest()
		request.Set("prompt", "login")
		token := g.TokenOfUser(user, request)
		for target, count := range want {
			if strings.Contains(target, "/") {
				if r := g.Get("/fhir/R4/"+target, token); r.StatusCode != count {
					t.Errorf("%s: %s: %d, want %d", user, target, r.StatusCode, count)
				}
			} else if found := g.pages("/fhir/R4/"+target, token); len(found) != count && (count != 1 || target == "Patient" || len(found) == 0) {
				t.Errorf("%s: %s: %d, want %d", user, target, len(found), count)
			}
		}
	}
}
