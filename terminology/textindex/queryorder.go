package textindex

import (
	"math/bits"

	"github.com/caddy-fhir/caddy-fhir/terminology/bitset"
)

// rankSymbols ranks what may match a filter of symbols by looking at each, and returns how many match.
func (q *query) rankSymbols() (total int) {
	var tiers [tierNone][]Hit
	for i, word := range q.match.each {
		for ; word != 0; word &= word - 1 {
			doc := q.index.order[i*64+bits.TrailingZeros64(word)]
			if tier := q.judge.tier(doc); tier != tierNone {
				tiers[tier] = append(tiers[tier], Hit{Doc: doc, tier: tier})
				total++
			}
		}
	}
	for _, hits := range tiers {
		for _, h := range hits {
			q.take(h)
		}
	}
	return total
}

// rank orders what matches, as far as it is wanted.
func (q *query) rank() {
	if q.done() {
		return
	}
	f, x, folder := q.judge.filter, q.index, &q.judge.folder
	q.emitRanks(x.coded(folder, f.joined), tierCode)
	from, exact, to := x.displayed(folder, f.line)
	q.emitRanks(x.displays.ranks[from:exact], tierDisplay)
	if q.first != nil {
		q.emitRanks(q.first[:q.leading], tierBeginning)
		q.emitRanks(q.first[q.leading:], tierOrdered)
		return
	}
	q.emitBeginning(exact, to)
	switch {
	case q.done():
	case f.letter != nil:
		q.emitInitials()
	case len(f.words) == 1:
		q.emit(&q.match, nil, tierOrdered)
	default:
		q.emitOrdered()
	}
}

// emitRanks emits those of a few ranks that match, in their order.
func (q *query) emitRanks(ranks []uint32, t tier) {
	for _, rank := range ranks {
		if q.done() {
			return
		}
		if q.first != nil || q.match.has(rank) { // if first is set, whatever has the word as code or display matches
			q.emitRank(rank, t)
		}
	}
}

// emitRank emits a rank once.
func (q *query) emitRank(rank uint32, t tier) {
	if !q.taken.has(rank) {
		q.taken.add(rank)
		q.take(Hit{Doc: q.index.order[rank], tier: t})
	}
}

// emitBeginning emits what matches of a range of index.displays.ranks whose displays begin with the filter. If all
// match, it looks only at the first in order.
func (q *query) emitBeginning(from, to int) {
	if from == to || q.done() {
		return
	}
	beginning := q.set()
	if q.within == nil {
		q.index.addLowest(&beginning, from, to, q.to)
	} else {
		q.index.addDisplayed(&beginning, from, to)
		beginning.intersect(q.within)
	}
	q.emit(&beginning, nil, tierBeginning)
	if !q.done() {
		q.taken.union(&beginning)
	}
	q.release(beginning)
}

// emitInitials emits what has the filter's letter at the beginning of a word, then the rest.
func (q *query) emitInitials() {
	initials := q.withRune(&q.index.initials, q.judge.filter.theLetter())
	if q.within != nil {
		initials = q.both(initials, rankSet{bits: q.within})
	}
	q.emit(&initials, nil, tierOrdered)
	q.emit(&q.match, initials.bits, tierAnywhere)
	q.release(initials)
}

// emitOrdered emits what has the filter's words in order, then the rest. It looks at each, up to the last one wanted.
func (q *query) emitOrdered() {
	for i, word := range q.match.each {
		for word &^= q.taken.bits[i]; word != 0; word &= word - 1 {
			rank := uint32(i*64 + bits.TrailingZeros64(word))
			if q.done() {
				return
			}
			if q.judge.isOrdered(q.index.order[rank]) {
				q.emitRank(rank, tierOrdered)
			}
		}
	}
	q.emit(&q.match, nil, tierAnywhere)
}

// emit emits the ranks of a set that are neither taken nor in others. It only counts those before the window.
func (q *query) emit(set *rankSet, others bitset.Set, t tier) {
	for i, word := range set.each {
		if q.done() {
			return
		}
		word &^= q.taken.bits[i]
		if others != nil {
			word &^= others[i]
		}
		if n := bits.OnesCount64(word); q.at+n <= q.from {
			q.at += n
			continue
		}
		for ; word != 0; word &= word - 1 {
			q.take(Hit{Doc: q.index.order[i*64+bits.TrailingZeros64(word)], tier: t})
		}
	}
}

func (q *query) take(h Hit) {
	if q.at >= q.from && q.at < q.to {
		q.hits = append(q.hits, h)
	}
	q.at++
}

// done reports whether all that is wanted has been taken.
func (q *query) done() bool { return q.at >= q.to }
