package interaction

import (
	"slices"
	"testing"
)

func TestKindString(t *testing.T) {
	t.Parallel()
	seen := make(map[string]bool)
	for k := Capabilities; k <= Operation; k++ {
		if name := k.String(); name == "" || name == "unknown" || seen[name] {
			t.Errorf("kind %d is called %q", k, name)
		} else {
			seen[name] = true
		}
	}
	for _, k := range []Kind{0, Operation + 1, 255} {
		if k.String() != "unknown" || (Interaction{Kind: k}).Permission() != 0 {
			t.Errorf("kind %d is called %q", k, k)
		}
	}
}

func TestTypes(t *testing.T) {
	t.Parallel()
	types := Types()
	if len(types) != 146 || !slices.IsSorted(types) || len(slices.Compact(types)) != 146 {
		t.Errorf("%d types", len(types))
	}
	for _, name := range types {
		if !IsType(name) {
			t.Errorf("%s is none", name)
		}
	}
	for _, name := range []string{"", "*", "patient", "Patient ", "Resource", "DomainResource", "Element"} {
		if IsType(name) {
			t.Errorf("%q is one", name)
		}
	}
	for _, name := range types {
		want := slices.Contains([]string{"Device", "Encounter", "Patient", "Practitioner", "RelatedPerson"}, name)
		if isCompartment(name) != want {
			t.Errorf("%s has a compartment: %t", name, !want)
		}
	}
}
