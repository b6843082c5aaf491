package textindex

import (
	"sync"

	"github.com/caddy-fhir/caddy-fhir/terminology/bitset"
)

// query is the search for one filter in an index. Queries are pooled, for the memory of their sets.
type query struct {
	index  *Index
	within bitset.Set // the ranks to search; nil for all
	how    leniency
	judge  judge
	found  []found // by word of the filter

	first []uint32 // the first that match, if these are enough; match is then unknown
	ends  []uint32 // where in these the first three tiers end
	match rankSet
	taken rankSet // what has been emitted
	spare []rankSet

	hits     []Hit
	at       int // how many hits came before
	from, to int // the window of hits that are wanted
}

var queries = sync.Pool{New: func() any { return new(query) }}

// searchIndex returns the hits from position from up to to, and how many there are in all.
func searchIndex(x *Index, within bitset.Set, f *Filter, how leniency, from, to int) ([]Hit, int) {
	q := queries.Get().(*query)
	q.index, q.within, q.how, q.at, q.from, q.to = x, within, how, 0, from, to
	q.judge.corpus, q.judge.filter, q.judge.asked = x.corpus, f, f.in(x.language)
	q.taken.empty(len(x.order))
	total := q.search()
	hits := q.hits // not the index's memory, which may be unmapped from here on
	q.release(q.match)
	q.forget()
	q.index, q.within, q.hits, q.first, q.ends, q.match = nil, nil, nil, nil, nil, rankSet{}
	q.judge.corpus, q.judge.filter, q.judge.asked = nil, nil, nil
	clear(q.judge.others[:cap(q.judge.others)])
	queries.Put(q)
	return hits, total
}

// search finds and ranks hits, and returns how many there are.
func (q *query) search() (total int) {
	f := q.judge.filter
	total, alone := q.findAlone()
	if !alone {
		q.match = q.find()
		if q.within != nil {
			q.match = q.both(q.match, rankSet{bits: q.within})
		}
		total = q.match.count()
	}
	q.hits = make([]Hit, 0, max(0, min(q.to, total)-q.from))
	switch {
	case f.symbols != nil:
		total = q.rankSymbols()
	case q.how != strictly:
		q.emit(&q.match, nil, tierLenient)
	default:
		q.rank()
	}
	return total
}

// set returns an empty set.
func (q *query) set() (s rankSet) {
	if last := len(q.spare) - 1; last >= 0 {
		s, q.spare = q.spare[last], q.spare[:last]
	}
	s.empty(len(q.index.order))
	return s
}

// release returns a set to spare.
func (q *query) release(s rankSet) {
	if s.isOwn() {
		q.spare = append(q.spare, s)
	}
}

// both returns the intersection of two sets, which must not be used afterwards. The zero a stands for all ranks.
func (q *query) both(a, b rankSet) rankSet {
	switch {
	case a.bits == nil:
		return b
	case a.isOwn():
		a.intersect(b.bits)
		q.release(b)
		return a
	case b.isOwn():
		b.intersect(a.bits)
		return b
	}
	both := q.set()
	both.unionOf(a.bits, b.bits)
	return both
}

// either returns the union of two sets, which must not be used afterwards. The zero a stands for none.
func (q *query) either(a, b rankSet) rankSet {
	switch {
	case a.bits == nil:
		return b
	case a.isOwn():
		a.union(&b)
		q.release(b)
		return a
	case b.isOwn():
		b.union(&a)
		return b
	}
	either := q.set()
	either.union(&a)
	either.union(&b)
	return either
}

// findAlone finds the documents with a word that begins with the filter's only one, if the first of them are ready and
// enough. It returns how many there are.
func (q *query) findAlone() (total int, ok bool) {
	w := q.judge.asked.only()
	if w == nil || q.how != strictly || q.within != nil {
		return 0, false
	}
	words, exact, ok := q.resolved(w).alone(q.index, w)
	if !ok {
		return 0, false
	}
	i, ok := q.index.common.typed(q.index, words.from, words.to, exact)
	if !ok {
		return 0, false
	}
	q.first, q.ends, total = q.index.common.firstOf(i)
	if len(q.first) < min(q.to, total) {
		q.first = nil
		return 0, false
	}
	return total, true
}

// find returns all that match, or, for symbols, all that may.
func (q *query) find() rankSet {
	f := q.judge.filter
	switch {
	case f.symbols != nil:
		return q.findSymbols(string(f.symbols))
	case f.letter != nil:
		return q.withRune(&q.index.letters, f.theLetter())
	}
	return q.upTo(tierBegun)
}

// withRune returns the documents that have a letter or sign.
func (q *query) withRune(sets *runeSets, r rune) rankSet {
	dense, list := sets.find(r, len(q.index.order))
	if dense.bits != nil {
		return dense
	}
	found := q.set()
	for _, rank := range list {
		found.add(rank)
	}
	return found
}

// findSymbols returns the documents that have each of the symbols.
func (q *query) findSymbols(symbols string) (found rankSet) {
	for _, r := range symbols {
		if r != ' ' {
			found = q.both(found, q.withRune(&q.index.symbols, r))
		}
	}
	return found
}
