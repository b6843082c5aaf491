package definitions

import (
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
)

// ContainedValueSet finds a value set that this one or its container contains, by #id or by canonical.
func (vs *ValueSet) ContainedValueSet(reference string) (*ValueSet, bool) {
	for ; vs != nil; vs = vs.Container {
		for _, inner := range vs.Contained {
			if reference == "#"+inner.ID || inner.IsNamed(reference) {
				return inner, true
			}
		}
	}
	return nil, false
}

// SumOfContainers adds up a number over a value set and its containers.
func (vs *ValueSet) SumOfContainers(number func(*ValueSet) int) (sum int) {
	for ; vs != nil; vs = vs.Container {
		sum += number(vs)
	}
	return sum
}

// ContainedCodeSystem finds a code system contained in a value set or its containers, by #id or by url and version; none if
// there is none.
func (t *SystemTable) ContainedCodeSystem(vs *ValueSet, url, version string) uint32 {
	for ; vs != nil; vs = vs.Container {
		for _, index := range vs.CodeSystems {
			if cs := t.CodeSystems[index]; url == "#"+cs.ID || cs.IsNamed(outcome.Canonical(url, version)) {
				return index
			}
		}
	}
	return None
}

// fragment finds a contained value set by the canonical of its container followed by #id.
func (t *valueSetTable) fragment(reference string) (*ValueSet, bool) {
	outer, id, ok := strings.Cut(reference, "#")
	if !ok {
		return nil, false
	}
	if vs, ok := t.fragments.get(reference); ok {
		return vs, true
	}
	vs, _ := t.Find(outer)
	return vs.ContainedValueSet("#" + id)
}

// addContained adds a code system that only the value set which contains it can name, and returns its index.
func (t *SystemTable) addContained(cs *CodeSystem) uint32 {
	cs.system = t.internSystem(cs.URL)
	index := uint32(len(t.CodeSystems))
	t.CodeSystems = append(t.CodeSystems, cs)
	if t.brought != nil {
		t.brought[index] = true
	}
	return index
}

// IsContained reports whether a code system is contained in a value set.
func (t *SystemTable) IsContained(index uint32) bool {
	return !slices.Contains(t.List[t.CodeSystems[index].system].Versions, index)
}
