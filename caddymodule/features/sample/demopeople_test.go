package sample_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
)

// The users of Caddyfile.example see exactly the records that the documentation describes.
func TestDemoPeople(t *testing.T) {
	t.Setenv("FHIR_BACKEND", "")
	g := gatewaytest.New(t, gatewaytest.ExampleText(t))
	for user, want := range map[string]map[string]int{
		"alice": {"Patient": 30, "Condition?patient=p02": 1},
		"nora":  {"Patient": 1, "Patient/p01": http.StatusOK, "Patient/p02": http.StatusNotFound},
		"robin": {"Patient": 1, "Patient/p23": http.StatusOK, "Patient/p24": http.StatusNotFound},
	} {
		request := gatewaytest.DemoRequest()
		request.Set("prompt", "login")
		token := g.TokenOfUser(user, request)
		for target, count := range want {
			if strings.Contains(target, "/") {
				if r := g.Get("/fhir/R4/"+target, token); r.StatusCode != count {
					t.Errorf("%s: %s: %d, want %d", user, target, r.StatusCode, count)
				}
			} else if found := pages(t, g, "/fhir/R4/"+target, token); len(found) != count && (count != 1 || target == "Patient" || len(found) == 0) {
				t.Errorf("%s: %s: %d, want %d", user, target, len(found), count)
			}
		}
	}
}
