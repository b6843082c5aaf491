package searchparam

import (
	"slices"
	"testing"
)

// Parameters names what Lookup finds and Matches can judge.
func TestParameters(t *testing.T) {
	t.Parallel()
	for resourceType, want := range map[string]struct{ has, hasNot []string }{
		"Patient": {[]string{"_id", "_lastUpdated", "birthdate", "name"}, []string{"_text", "_content", "code"}},
		"Binary":  {[]string{"_id", "_lastUpdated"}, []string{"_text", "name"}},
	} {
		var names []string
		for _, p := range Parameters(resourceType) {
			names = append(names, p.Name)
			if found, ok := Lookup(resourceType, p.Name); !ok || found.Name != p.Name {
				t.Errorf("%s: Lookup has no %s", resourceType, p.Name)
			}
		}
		for _, name := range want.has {
			if !slices.Contains(names, name) {
				t.Errorf("%s has no %s: %q", resourceType, name, names)
			}
		}
		for _, name := range want.hasNot {
			if slices.Contains(names, name) {
				t.Errorf("%s has %s", resourceType, name)
			}
		}
	}
}
