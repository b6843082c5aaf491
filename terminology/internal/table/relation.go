package table

import "github.com/caddy-fhir/caddy-fhir/terminology/internal/bitset"

// relation maps concept i to the concepts to[from[i]:from[i+1]]. An empty relation allocates no memory.
type relation struct {
	from offsets
	to   []uint32
}

func (r relation) related(concept uint32) []uint32 {
	from, to := r.from.rows(concept)
	return r.to[from:to]
}

// offsets contains the first row of each concept, followed by the number of rows. It is nil if there are no rows.
type offsets []uint32

func (o offsets) rows(concept uint32) (from, to uint32) {
	if o == nil {
		return 0, 0
	}
	return o[concept], o[concept+1]
}

type pair struct{ from, to uint32 }

// newRelation returns the relation of n concepts given as pairs. It retains the order per concept and drops duplicates.
func newRelation(n int, pairs []pair) relation {
	if len(pairs) == 0 {
		return relation{}
	}
	from, to := SortByOwner(n, len(pairs), func(i int) (uint32, uint32) { return pairs[i].from, pairs[i].to })
	owner := make([]uint32, n) // owner[c] is one plus the last concept with a list that contains c
	kept := uint32(0)
	for i := range uint32(n) {
		list := to[from[i]:from[i+1]]
		from[i] = kept
		for _, concept := range list {
			if owner[concept] != i+1 {
				owner[concept] = i + 1
				to[kept] = concept
				kept++
			}
		}
	}
	from[n] = kept
	return relation{from: from, to: to[:kept:kept]}
}

// invertPairs swaps the members of each pair.
func invertPairs(pairs []pair) []pair {
	turned := make([]pair, len(pairs))
	for i, p := range pairs {
		turned[i] = pair{from: p.to, to: p.from}
	}
	return turned
}

// SortByOwner is a stable counting sort of rows by n owners. It returns the first row of each owner and the sorted values.
func SortByOwner(n, rows int, row func(i int) (owner, value uint32)) (from, values []uint32) {
	from = make([]uint32, n+1)
	for i := range rows {
		owner, _ := row(i)
		from[owner+1]++
	}
	for i := range n {
		from[i+1] += from[i]
	}
	next := make([]uint32, n)
	copy(next, from)
	values = make([]uint32, rows)
	for i := range rows {
		owner, value := row(i)
		values[next[owner]] = value
		next[owner]++
	}
	return from, values
}

// closure returns the concepts reachable from start in one or more steps. It supports cycles and any depth.
func (r relation) closure(n int, start uint32, spend func(n int) error) (bitset.Set, error) {
	if err := spend(n / 64); err != nil {
		return nil, err
	}
	reached := bitset.New(n)
	pending := append([]uint32(nil), r.related(start)...)
	for len(pending) > 0 {
		concept := pending[len(pending)-1]
		pending = pending[:len(pending)-1]
		if reached.Has(concept) {
			continue
		}
		reached.Add(concept)
		next := r.related(concept)
		if err := spend(1 + len(next)); err != nil {
			return nil, err
		}
		pending = append(pending, next...)
	}
	return reached, nil
}
