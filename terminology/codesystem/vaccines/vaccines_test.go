package vaccines_test

import (
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology/api"
	_ "github.com/caddy-fhir/caddy-fhir/terminology/codesystem/vaccines"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest/fixture"
)

// The built-in lists of vaccines and their manufacturers say when they end, and what to do.
func TestVaccinesEnd(t *testing.T) {
	for _, id := range []string{"cvx", "mvx"} {
		w, _ := terminologytest.Call(t, &api.Handler{Library: terminologytest.Core(t)}, "GET", "/CodeSystem/"+id, "")
		fixture.WantText(t, w.Body.String(), `"content":"fragment"`, "This list ends in 2009", "content complete")
	}
}
