package api

import (
	"slices"
	"strings"
	"testing"
)

// TestSearchResourceTypes has what FHIR itself writes without spaces: every display with such a part is found.
func TestSearchResourceTypes(t *testing.T) {
	const types = "http://hl7.org/fhir/ValueSet/resource-types"
	l := coreLibrary(t)
	for _, part := range []string{"Definition", "Request", "Response"} {
		found := expand(t, l, "url", types, "filter", strings.ToLower(part)).codes()
		for _, code := range expand(t, l, "url", types).codes() {
			if strings.Contains(code, part) && !slices.Contains(found, code) {
				t.Errorf("%s does not find %s: %q", part, code, found)
			}
		}
		inside := func(code string) bool { return !strings.HasPrefix(code, part) }
		if first := slices.IndexFunc(found, inside); first >= 0 && slices.ContainsFunc(found[first:], func(code string) bool { return !inside(code) }) {
			t.Errorf("%s: not first what begins so: %q", part, found)
		}
	}
}
