package subsumes_test

import (
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology/api"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest/fixture"
)

// TestHierarchyMeaning checks that parents subsume their children only for some values of hierarchyMeaning (R4
// CodeSystem.hierarchyMeaning).
func TestHierarchyMeaning(t *testing.T) {
	for meaning, want := range map[string]string{
		"": "subsumes", "is-a": "subsumes", "classified-with": "subsumes", "grouped-by": "not-subsumed", "part-of": "not-subsumed",
	} {
		h := &api.Handler{Library: terminologytest.Library(t, strings.Replace(fixture.Colours, `"content"`, `"hierarchyMeaning":"`+meaning+`","content"`, 1))}
		w, _ := terminologytest.Call(t, h, "GET", "/CodeSystem/$subsumes?system=http://x/colours&codeA=any&codeB=pink", "")
		fixture.WantContains(t, w.Body.String(), `"valueCode":"`+want+`"`)
		w, _ = terminologytest.Call(t, h, "GET", "/metadata?mode=terminology", "")
		if got := strings.Contains(w.Body.String(), `"subsumption":true`); got != (want == "subsumes") {
			t.Errorf("%s: TerminologyCapabilities list subsumption: %t", meaning, got)
		}
	}
}
