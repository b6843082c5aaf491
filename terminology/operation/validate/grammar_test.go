package validate_test

import (
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology/api"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest/fixture"
)

// The reason for a failed filter is only in the message: other servers return no issue for it.
func TestMismatchOfSource(t *testing.T) {
	h := &api.Handler{Library: terminologytest.SourceLibrary(t, fixture.ValueSet("http://x/lengths", `{"include":[{"system":"http://x/measures","filter":[{"property":"base","op":"=","value":"7cm"}]}]}`))}
	w, _ := terminologytest.Call(t, h, "GET", "/ValueSet/$validate-code?url=http://x/lengths&system=http://x/measures&code=7s", "")
	if !strings.Contains(w.Body.String(), "Code 7s is not = 7cm; ") || strings.Count(w.Body.String(), `"details"`) != 1 {
		t.Errorf("got %s", w.Body)
	}
}
