package terminology

import (
	"math/bits"
	"sync"
)

// hit is a document that matches, and how well.
type hit struct {
	doc  uint32
	tier tier
}

// indexQuery is one filter being looked for in an index. It is used again, for the memory of its sets.
type indexQuery struct {
	index  *index
	within bitset // the ranks to look among; nil for all
	judge  judge

	match, term, word, tier bitset

	hits     []hit
	at       int // how many hits came before
	from, to int // the window of hits that are wanted
}

var indexQueries = sync.Pool{New: func() any { return new(indexQuery) }}

// searchIndex returns the hits from the position from up to to, in order, and how many there are in all.
func searchIndex(x *index, within bitset, f *textFilter, how leniency, from, to int) ([]hit, int) {
	q := indexQueries.Get().(*indexQuery)
	defer indexQueries.Put(q)
	q.index, q.within, q.hits, q.at, q.from, q.to = x, within, nil, 0, from, to
	q.judge.corpus, q.judge.filter = x.corpus, f
	defer func() { q.index, q.within, q.hits, q.judge.corpus, q.judge.filter = nil, nil, nil, nil, nil }()
	n := len(x.order)
	for _, set := range []*bitset{&q.match, &q.term, &q.word, &q.tier} {
		*set = set.sized(n)
	}
	q.find(how)
	if within != nil {
		q.match.intersect(within)
	}
	total := q.match.count()
	switch {
	case f.symbols != nil:
		total = q.rankSymbols()
	case how != strictly:
		q.emit(q.match, tierLenient)
	default:
		q.rank()
	}
	return q.hits, total
}

// find sets match to all that match, or, for symbols, to all that may.
func (q *indexQuery) find(how leniency) {
	f, x := q.judge.filter, q.index
	switch {
	case f.symbols != nil:
		q.findSymbols(string(f.symbols))
	case f.letter != nil:
		for _, r := range string(f.letter) {
			x.letters.addTo(q.match, r)
		}
	default:
		for i := range f.terms {
			q.findTerm(&f.terms[i], how)
			if i == 0 {
				q.match, q.term = q.term, q.match
			} else {
				q.match.intersect(q.term)
			}
		}
	}
}

// findTerm sets term to all in which a term is found.
func (q *indexQuery) findTerm(t *term, how leniency) {
	clear(q.term)
	for i, word := range t.words {
		into := q.term
		if i > 0 {
			into = q.word
			clear(into)
		}
		most := maxTypos(word[1:])
		switch {
		case how == withinWords:
			q.index.addContaining(into, word[1:])
		case how == withTypos && most > 0:
			q.index.addMeant(into, word[1:], most)
		default:
			q.index.addPrefix(into, word[1:])
		}
		if i > 0 {
			q.term.intersect(q.word)
		}
	}
	if t.joined != nil {
		q.index.addPrefix(q.term, t.joined[1:])
	}
}

// findSymbols sets match to all that have each of the symbols somewhere.
func (q *indexQuery) findSymbols(symbols string) {
	first := true
	for _, r := range symbols {
		if r == ' ' {
			continue
		}
		clear(q.term)
		q.index.symbols.addTo(q.term, r)
		if first {
			q.match, q.term = q.term, q.match
			first = false
			continue
		}
		q.match.intersect(q.term)
	}
}

// rankSymbols ranks what may match a filter of symbols, by looking at each, and returns how many do.
func (q *indexQuery) rankSymbols() (total int) {
	var tiers [tierNone][]hit
	q.match.each(func(rank uint32) {
		doc := q.index.order[rank]
		if tier := q.judge.tier(doc); tier != tierNone {
			tiers[tier] = append(tiers[tier], hit{doc: doc, tier: tier})
			total++
		}
	})
	for _, hits := range tiers {
		for _, h := range hits {
			q.take(h)
		}
	}
	return total
}

// rank brings what matches into order, as far as it is wanted. What has been ranked is taken out of match.
func (q *indexQuery) rank() {
	if q.done() {
		return
	}
	f, x, folder := q.judge.filter, q.index, &q.judge.folder
	q.emitRanks(x.coded(folder, f.joined), tierCode)
	displayed, exact := x.displayed(folder, f.line)
	q.emitRanks(displayed[:exact], tierDisplay)
	q.emitRanks(displayed[exact:], tierBeginning)
	switch {
	case q.done():
	case f.letter != nil:
		q.emitInitials()
	case len(f.words) == 1:
		q.emit(q.match, tierOrdered)
	default:
		q.emitOrdered()
	}
}

// emitRanks emits those ranks that match.
func (q *indexQuery) emitRanks(ranks []uint32, t tier) {
	if len(ranks) == 0 || q.done() {
		return
	}
	clear(q.tier)
	for _, rank := range ranks {
		q.tier.add(rank)
	}
	q.tier.intersect(q.match)
	q.match.subtract(q.tier)
	q.emit(q.tier, t)
}

// emitInitials emits what has the letter of the filter at the beginning of a word, and then the rest.
func (q *indexQuery) emitInitials() {
	clear(q.tier)
	for _, r := range string(q.judge.filter.letter) {
		q.index.initials.addTo(q.tier, r)
	}
	q.tier.intersect(q.match)
	q.match.subtract(q.tier)
	q.emit(q.tier, tierOrdered)
	q.emit(q.match, tierAnywhere)
}

// emitOrdered emits what has the words of the filter in order, and then the rest. Each is looked at, but
// only up to the last one that is wanted.
func (q *indexQuery) emitOrdered() {
	clear(q.tier)
	for i, word := range q.match {
		for ; word != 0 && !q.done(); word &= word - 1 {
			rank := uint32(i*64 + bits.TrailingZeros64(word))
			doc := q.index.order[rank]
			if q.judge.isOrdered(doc) {
				q.take(hit{doc: doc, tier: tierOrdered})
				q.tier.add(rank)
			}
		}
	}
	q.match.subtract(q.tier)
	q.emit(q.match, tierAnywhere)
}

// emit takes all of a set. What comes before the window is counted, not looked at.
func (q *indexQuery) emit(set bitset, t tier) {
	for i, word := range set {
		if q.done() {
			return
		}
		if n := bits.OnesCount64(word); q.at+n <= q.from {
			q.at += n
			continue
		}
		for ; word != 0; word &= word - 1 {
			q.take(hit{doc: q.index.order[i*64+bits.TrailingZeros64(word)], tier: t})
		}
	}
}

// take takes the next hit.
func (q *indexQuery) take(h hit) {
	if q.at >= q.from && q.at < q.to {
		q.hits = append(q.hits, h)
	}
	q.at++
}

// done reports whether all that is wanted has been taken.
func (q *indexQuery) done() bool { return q.at >= q.to }
