package terminology

import "slices"

// tree is the shape of a nested expansion. Entries are numbered as in the expansion; lists end with none.
type tree struct {
	root  uint32   // the first entry not nested in another
	child []uint32 // the first entry nested in each
	next  []uint32 // the next entry nested in the same one
}

// maxTreeDepth bounds the nesting of entries; JSON readers have such limits as well.
const maxTreeDepth = 200

// shape returns the tree of an expansion, or nil if it must be a list: if no entry is above another, or one has several
// parents. With direct, an entry is nested only in its direct parent.
func shape(d *Set, entries []entry, direct bool) *tree {
	places := make(map[uint32][]uint32) // by code system: place in the expansion by concept, plus one
	for i, e := range entries {
		if e.concept == none {
			return nil
		}
		if places[e.codeSystem] == nil {
			places[e.codeSystem] = make([]uint32, d.codeSystems[e.codeSystem].concepts.Len())
		}
		places[e.codeSystem][e.concept] = uint32(i) + 1
	}
	parents := make([]uint32, len(entries))
	for i, e := range entries {
		var ok bool
		if parents[i], ok = above(d.codeSystems[e.codeSystem], e.concept, places[e.codeSystem], direct); !ok {
			return nil
		}
	}
	if !slices.ContainsFunc(parents, func(parent uint32) bool { return parent != none }) {
		return nil
	}
	return newTree(parents)
}

// above finds the position of a concept's parent if direct, else of its nearest ancestor that has one. It fails if
// there are several ways up.
func above(cs *codeSystem, concept uint32, places []uint32, direct bool) (place uint32, ok bool) {
	for range maxTreeDepth {
		parents := cs.concepts.Hierarchy.Parents(concept)
		switch {
		case len(parents) == 0:
			return none, true
		case len(parents) > 1:
			return none, false
		case places[parents[0]] != 0:
			return places[parents[0]] - 1, true
		case direct:
			return none, true
		}
		concept = parents[0]
	}
	return none, false
}

// newTree makes a tree from the parent of each entry. It is nil if the tree is too deep or has a cycle.
func newTree(parents []uint32) *tree {
	n := len(parents)
	t := &tree{root: none, child: make([]uint32, n), next: make([]uint32, n)}
	for i := range t.child {
		t.child[i] = none
	}
	for i := n - 1; i >= 0; i-- {
		first := &t.root
		if parents[i] != none {
			first = &t.child[parents[i]]
		}
		t.next[i], *first = *first, uint32(i)
	}
	if count, deepest := t.measure(); count != n || deepest > maxTreeDepth {
		return nil
	}
	return t
}

// measure returns how many entries can be reached from the root, and their greatest depth.
func (t *tree) measure() (count, deepest int) {
	type place struct{ entry, depth uint32 }
	pending := []place{{entry: t.root}}
	for len(pending) > 0 {
		p := pending[len(pending)-1]
		pending = pending[:len(pending)-1]
		for e := p.entry; e != none; e = t.next[e] {
			count++
			deepest = max(deepest, int(p.depth))
			if t.child[e] != none {
				pending = append(pending, place{entry: t.child[e], depth: p.depth + 1})
			}
		}
	}
	return count, deepest
}
