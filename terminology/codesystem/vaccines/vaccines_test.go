package vaccines_test

import (
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology/api"
	_ "github.com/caddy-fhir/caddy-fhir/terminology/standard" // registers the operations
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest/fixture"
)

func TestSource(t *testing.T) {
	terminologytest.WantSource(t, "cvx", "http://hl7.org/fhir/sid/cvx", false)
	terminologytest.WantSource(t, "mvx", "http://hl7.org/fhir/sid/mvx", false)
	terminologytest.WantCode(t, "http://hl7.org/fhir/sid/cvx", "2009", "88", "influenza, NOS", "")
	terminologytest.WantCode(t, "http://hl7.org/fhir/sid/mvx", "2009", "MSD", "Merck & Co., Inc.", "")
	terminologytest.WantMissing(t, map[string]bool{
		"/CodeSystem/$validate-code?url=http://hl7.org/fhir/sid/cvx&code=208": true,
		"/CodeSystem/$validate-code?url=http://hl7.org/fhir/sid/cvx&code=88":  false,
		"/CodeSystem/$lookup?system=http://hl7.org/fhir/sid/cvx&code=208":     true,
	})
}

// TestVaccinesEnd checks that the descriptions of the built-in lists state when they end and how to replace them.
func TestVaccinesEnd(t *testing.T) {
	for _, id := range []string{"cvx", "mvx"} {
		w, _ := terminologytest.Call(t, &api.Handler{Library: terminologytest.Core(t)}, "GET", "/CodeSystem/"+id, "")
		fixture.WantContains(t, w.Body.String(), `"content":"fragment"`, "This list ends in 2009", "content complete")
	}
}

// TestReplaced checks that a complete CodeSystem replaces any built-in one, and a fragment only a fragment.
func TestReplaced(t *testing.T) {
	terminologytest.RequireFeatures(t, "/CodeSystem/$validate-code")
	for _, version := range []string{"", "2009", "2008", "20260101"} {
		for content, unknown := range map[string]string{"complete": "Unknown_Code_in", "fragment": "UNKNOWN_CODE_IN_FRAGMENT"} {
			t.Run(content+" "+version, func(t *testing.T) {
				newer := `{"resourceType":"CodeSystem","url":"http://hl7.org/fhir/sid/cvx","version":"` + version + `","content":"` + content + `","concept":[{"code":"208"}]}`
				loaded, core := &api.Handler{Library: terminologytest.CoreWith(t, newer)}, &api.Handler{Library: terminologytest.Core(t)}
				for code, want := range map[string]string{"208": terminologytest.ResultTrue, "88": unknown} {
					fixture.WantContains(t, terminologytest.ValidateIn(t, loaded, "http://hl7.org/fhir/sid/cvx", code, ""), want)
					fixture.WantContains(t, terminologytest.ValidateIn(t, core, "http://hl7.org/fhir/sid/cvx", code, newer), want)
				}
				terminologytest.WantCodes(t, terminologytest.Expand(t, loaded.Library, "url", "http://hl7.org/fhir/sid/cvx?fhir_vs"), "208")
			})
		}
	}
}

func TestBesidePart(t *testing.T) {
	terminologytest.WantPartialSystem(t, "http://hl7.org/fhir/sid/cvx", "example", "88")
}
