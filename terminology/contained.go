package terminology

import (
	"slices"
	"strings"
)

// containedValueSet finds a value set that this one or its container contains, by #id or by canonical.
func (vs *valueSet) containedValueSet(reference string) (*valueSet, bool) {
	for ; vs != nil; vs = vs.container {
		for _, inner := range vs.contained {
			if reference == "#"+inner.id || inner.isNamed(reference) {
				return inner, true
			}
		}
	}
	return nil, false
}

// sumOfContainers adds up a number over a value set and its containers.
func (vs *valueSet) sumOfContainers(number func(*valueSet) int) (sum int) {
	for ; vs != nil; vs = vs.container {
		sum += number(vs)
	}
	return sum
}

// containedCodeSystem finds a code system contained in a value set or its containers, by #id or by url and version; none if
// there is none.
func (t *systemTable) containedCodeSystem(vs *valueSet, url, version string) uint32 {
	for ; vs != nil; vs = vs.container {
		for _, index := range vs.codeSystems {
			if cs := t.codeSystems[index]; url == "#"+cs.id || cs.isNamed(canonical(url, version)) {
				return index
			}
		}
	}
	return none
}

// fragment finds a contained value set by the canonical of its container followed by #id.
func (t *valueSetTable) fragment(reference string) (*valueSet, bool) {
	outer, id, ok := strings.Cut(reference, "#")
	if !ok {
		return nil, false
	}
	for at := t; at != nil; at = at.base {
		if vs, ok := at.fragments[reference]; ok {
			return vs, true
		}
	}
	vs, _ := t.valueSet(outer)
	return vs.containedValueSet("#" + id)
}

// addContained adds a code system that only the value set which contains it can name, and returns its index.
func (t *systemTable) addContained(cs *codeSystem) uint32 {
	cs.system = t.internSystem(cs.url)
	t.codeSystems = append(t.codeSystems, cs)
	return uint32(len(t.codeSystems) - 1)
}

func (t *systemTable) isContained(index uint32) bool {
	return !slices.Contains(t.systems[t.codeSystems[index].system].versions, index)
}
