package compose

import (
	"slices"

	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
)

// Tree is the structure of a nested expansion. Entries are indexes in the expansion. None terminates a list of siblings.
type Tree struct {
	Root  uint32   // first top-level entry
	Child []uint32 // for each entry: its first nested entry
	Next  []uint32 // for each entry: its next sibling
}

// maxTreeDepth is the maximum nesting depth of entries. JSON parsers have similar limits.
const maxTreeDepth = 200

// BuildTree returns the tree of an expansion. It returns nil if the expansion must be a list because no entry is above another
// or an entry has several parents. If direct is true, entries are nested only in direct parents.
func BuildTree(d *definitions.Set, entries []definitions.Entry, direct bool) *Tree {
	places := make(map[uint32][]uint32) // by code system and concept: position in the expansion plus one
	for i, e := range entries {
		if !e.HasConceptNumber() {
			return nil
		}
		if places[e.CodeSystem] == nil {
			places[e.CodeSystem] = make([]uint32, d.Systems.CodeSystems[e.CodeSystem].Concepts.Len())
		}
		places[e.CodeSystem][e.Concept] = uint32(i) + 1
	}
	parents := make([]uint32, len(entries))
	for i, e := range entries {
		var ok bool
		if parents[i], ok = parentPosition(d.Systems.CodeSystems[e.CodeSystem], e.Concept, places[e.CodeSystem], direct); !ok {
			return nil
		}
	}
	if !slices.ContainsFunc(parents, func(parent uint32) bool { return parent != definitions.None }) {
		return nil
	}
	return newTree(parents)
}

// parentPosition returns the position of a concept's parent if direct is true, otherwise the position of its nearest ancestor
// in the expansion, or None. ok is false if the concept or an ancestor has several parents, or the hierarchy is too deep.
func parentPosition(cs *definitions.CodeSystem, concept uint32, places []uint32, direct bool) (place uint32, ok bool) {
	for range maxTreeDepth {
		parents := cs.Concepts.Hierarchy.Parents(concept)
		switch {
		case len(parents) == 0:
			return definitions.None, true
		case len(parents) > 1:
			return definitions.None, false
		case places[parents[0]] != 0:
			return places[parents[0]] - 1, true
		case direct:
			return definitions.None, true
		}
		concept = parents[0]
	}
	return definitions.None, false
}

// newTree returns the tree in which each entry has the given parent. It returns nil if the tree is too deep or has a cycle.
func newTree(parents []uint32) *Tree {
	n := len(parents)
	t := &Tree{Root: definitions.None, Child: make([]uint32, n), Next: make([]uint32, n)}
	for i := range t.Child {
		t.Child[i] = definitions.None
	}
	for i := n - 1; i >= 0; i-- {
		first := &t.Root
		if parents[i] != definitions.None {
			first = &t.Child[parents[i]]
		}
		t.Next[i], *first = *first, uint32(i)
	}
	if count, deepest := t.measure(); count != n || deepest > maxTreeDepth {
		return nil
	}
	return t
}

// measure returns the number of entries reachable from the root, and the maximum depth.
func (t *Tree) measure() (count, deepest int) {
	type place struct{ entry, depth uint32 }
	pending := []place{{entry: t.Root}}
	for len(pending) > 0 {
		p := pending[len(pending)-1]
		pending = pending[:len(pending)-1]
		for e := p.entry; e != definitions.None; e = t.Next[e] {
			count++
			deepest = max(deepest, int(p.depth))
			if t.Child[e] != definitions.None {
				pending = append(pending, place{entry: t.Child[e], depth: p.depth + 1})
			}
		}
	}
	return count, deepest
}
