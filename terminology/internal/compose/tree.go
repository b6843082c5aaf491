package compose

import (
	"slices"

	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
)

// Tree is the shape of a nested expansion. Entries are numbered as in the expansion; lists end with none.
type Tree struct {
	Root  uint32   // the first entry not nested in another
	Child []uint32 // the first entry nested in each
	Next  []uint32 // the next entry nested in the same one
}

// maxTreeDepth bounds the nesting of entries; JSON readers have such limits as well.
const maxTreeDepth = 200

// Shape returns the tree of an expansion, or nil if it must be a list: if no entry is above another, or one has several
// parents. With direct, an entry is nested only in its direct parent.
func Shape(d *definitions.Set, entries []definitions.Entry, direct bool) *Tree {
	places := make(map[uint32][]uint32) // by code system: place in the expansion by concept, plus one
	for i, e := range entries {
		if !e.IsNumbered() {
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
		if parents[i], ok = above(d.Systems.CodeSystems[e.CodeSystem], e.Concept, places[e.CodeSystem], direct); !ok {
			return nil
		}
	}
	if !slices.ContainsFunc(parents, func(parent uint32) bool { return parent != definitions.None }) {
		return nil
	}
	return newTree(parents)
}

// above finds the position of a concept's parent if direct, else of its nearest ancestor that has one. It fails if
// there are several ways up.
func above(cs *definitions.CodeSystem, concept uint32, places []uint32, direct bool) (place uint32, ok bool) {
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

// newTree makes a tree from the parent of each entry. It is nil if the tree is too deep or has a cycle.
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

// measure returns how many entries can be reached from the root, and their greatest depth.
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
