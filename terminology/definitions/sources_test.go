package definitions

import (
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
)

// A code system that the program knows itself is read by clients as a CodeSystem, whose content R4 wants.
func TestBuiltInIsWhole(t *testing.T) {
	for _, sensitive := range []string{"true", "false"} {
		got := map[string]string{}
		for _, m := range systemOf(codesystem.Source{URL: "http://x/own", CaseSensitive: sensitive == "true"}).Rest {
			got[m.Name] = string(m.Value)
		}
		if got["content"] != `"complete"` || got["caseSensitive"] != sensitive {
			t.Errorf("got %v", got)
		}
	}
}
