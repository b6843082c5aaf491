package fhirapp

import (
	"net/http"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
)

// Apps can search by what a site defines beyond R4.
func TestSearchParameters(t *testing.T) {
	t.Parallel()
	g := exampleGateway(t, echo, guarding("search_parameters testdata/search*.json")...)
	request := gatewaytest.DemoRequest()
	request.Set("scope", "user/CareTeam.rs")
	token := g.TokenOf(request)
	for path, want := range map[string]int{"CareTeam?role=doctor": http.StatusOK, "CareTeam?rule=doctor": http.StatusBadRequest} {
		if response := g.Get("/fhir/R4/"+path, token); response.StatusCode != want {
			t.Errorf("%s: status %d, want %d", path, response.StatusCode, want)
		}
	}
}
