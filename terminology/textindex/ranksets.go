package textindex

import "slices"

// rankSets is the memory of the sets of a query, and what is made of them.
type rankSets struct {
	n     int // ranks are below it
	spare []rankSet
}

// set returns an empty set.
func (r *rankSets) set() (s rankSet) {
	if last := len(r.spare) - 1; last >= 0 {
		s, r.spare = r.spare[last], r.spare[:last]
	}
	s.empty(r.n)
	return s
}

// release returns a set to spare.
func (r *rankSets) release(s rankSet) {
	if s.isOwn() {
		r.spare = append(r.spare, s)
	}
}

// all returns the intersection of sets, which must not be used afterwards. It begins with those that have the fewest words
// in use, and with sets of the index last.
func (r *rankSets) all(sets []rankSet) (all rankSet) {
	slices.SortFunc(sets, func(a, b rankSet) int { return a.inUse() - b.inUse() })
	for _, s := range sets {
		all = r.both(all, s)
	}
	return all
}

// both returns the intersection of two sets, which must not be used afterwards. The zero a stands for all ranks.
func (r *rankSets) both(a, b rankSet) rankSet {
	switch {
	case a.bits == nil:
		return b
	case a.isOwn():
		a.intersect(b.bits)
		r.release(b)
		return a
	case b.isOwn():
		b.intersect(a.bits)
		return b
	}
	if a.inUse() > b.inUse() {
		a, b = b, a
	}
	both := r.set()
	both.unionOf(&a, b.bits)
	return both
}

// either returns the union of two sets, which must not be used afterwards. The zero a stands for none.
func (r *rankSets) either(a, b rankSet) rankSet {
	switch {
	case a.bits == nil:
		return b
	case a.isOwn():
		a.union(&b)
		r.release(b)
		return a
	case b.isOwn():
		b.union(&a)
		return b
	}
	either := r.set()
	either.union(&a)
	either.union(&b)
	return either
}
