package textindex

import (
	"sync"

	"github.com/caddy-fhir/caddy-fhir/terminology/bitset"
)

// query is the search for one filter in an index. Queries are pooled, for the memory of their sets.
type query struct {
	index  *Index
	within bitset.Set // the ranks to search; nil for all
	judge  judge

	first   []uint32 // the first that match, if these are enough; match is then unknown
	leading int      // number of those whose display begins with the filter
	match   rankSet
	taken   rankSet // what has been emitted
	spare   []rankSet

	hits     []Hit
	at       int // how many hits came before
	from, to int // the window of hits that are wanted
}

var queries = sync.Pool{New: func() any { return new(query) }}

// searchIndex returns the hits from position from up to to, and how many there are in all.
func searchIndex(x *Index, within bitset.Set, f *Filter, how leniency, from, to int) ([]Hit, int) {
	q := queries.Get().(*query)
	q.index, q.within, q.at, q.from, q.to = x, within, 0, from, to
	q.judge.corpus, q.judge.filter = x.corpus, f
	q.taken.empty(len(x.order))
	total := q.search(how)
	hits := q.hits // not the index's memory, which may be unmapped from here on
	q.release(q.match)
	q.index, q.within, q.hits, q.first, q.match = nil, nil, nil, nil, rankSet{}
	q.judge.corpus, q.judge.filter = nil, nil
	clear(q.judge.others[:cap(q.judge.others)])
	queries.Put(q)
	return hits, total
}

// search finds and ranks hits, and returns how many there are.
func (q *query) search(how leniency) (total int) {
	f := q.judge.filter
	if how == strictly && q.within == nil && len(f.words) == 1 {
		total = q.findAlone(f.words[0][1:])
	} else {
		q.match = q.find(how)
		if q.within != nil {
			q.match = q.both(q.match, rankSet{bits: q.within})
		}
		total = q.match.count()
	}
	q.hits = make([]Hit, 0, max(0, min(q.to, total)-q.from))
	switch {
	case f.symbols != nil:
		total = q.rankSymbols()
	case how != strictly:
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

// findAlone finds the documents with a word that begins with the filter's only one, or just the first of them if that
// is enough. It returns how many there are.
func (q *query) findAlone(word []byte) (total int) {
	x := q.index
	from, to := x.words.prefixed(word)
	if i, ok := x.common.find(from, to); ok {
		if q.first, q.leading, total = x.common.firstOf(i); len(q.first) >= min(q.to, total) {
			return total
		}
		q.first = nil
	}
	q.match = q.withWords(from, to)
	return q.match.count()
}

// find returns all that match, or, for symbols, all that may.
func (q *query) find(how leniency) (found rankSet) {
	f := q.judge.filter
	switch {
	case f.symbols != nil:
		return q.findSymbols(string(f.symbols))
	case f.letter != nil:
		return q.withRune(&q.index.letters, f.theLetter())
	}
	for i := range f.terms {
		found = q.both(found, q.findTerm(&f.terms[i], how))
	}
	return found
}

func (q *query) findTerm(t *term, how leniency) (found rankSet) {
	for _, word := range t.words {
		found = q.both(found, q.findWord(word[1:], how))
	}
	if t.joined != nil { // a term of several words: found is not a set of the index
		from, to := q.index.words.prefixed(t.joined[1:])
		q.index.addWords(&found, from, to)
	}
	return found
}

func (q *query) findWord(word []byte, how leniency) rankSet {
	x, most := q.index, maxTypos(word)
	switch {
	case how == withinWords:
		found := q.set()
		x.addContaining(&found, word)
		return found
	case how == withTypos && most > 0:
		found := q.set()
		x.addMeant(&found, word, most)
		return found
	default:
		return q.withWords(x.words.prefixed(word))
	}
}

// withWords returns the documents that have one of a range of words.
func (q *query) withWords(from, to int) rankSet {
	if common, ok := q.index.common.set(from, to, len(q.index.order)); ok {
		return common
	}
	found := q.set()
	q.index.unite(&found, from, to)
	return found
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
