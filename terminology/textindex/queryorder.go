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
	q.emitRanks(x.coded(folder, f.joined), tierCode, len(x.order))
	q.emitTerms()
	switch {
	case q.first != nil:
		q.emitFirst()
	case f.letter != nil:
		q.emitInitials()
	default:
		q.emitTiers()
	}
}

// emitTerms emits what can be chosen and whose display is the filter.
func (q *query) emitTerms() {
	lines := q.judge.asked.lines
	if len(lines) == 1 {
		from, to := q.index.displayed(&q.judge.folder, lines[0])
		q.emitRanks(q.index.displays.ranks[from:to], tierTerm, q.index.chosen)
		return
	}
	terms := q.set()
	for _, line := range lines {
		from, to := q.index.displayed(&q.judge.folder, line)
		for _, rank := range q.index.displays.ranks[from:to] {
			if int(rank) < q.index.chosen && q.match.has(rank) {
				terms.add(rank)
			}
		}
	}
	q.emit(&terms, q.taken.bits, tierTerm)
	q.taken.union(&terms)
	q.release(terms)
}

// emitRanks emits those of a few ranks that match and are below a limit, in their order.
func (q *query) emitRanks(ranks []uint32, t tier, limit int) {
	for _, rank := range ranks {
		if q.done() || int(rank) >= limit {
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

// emitFirst emits the first of a common beginning.
func (q *query) emitFirst() {
	from := uint32(0)
	for i, end := range append(q.ends[:3:3], uint32(len(q.first))) {
		q.emitRanks(q.first[from:end], tierWholeHead+tier(i), len(q.index.order))
		from = end
	}
}

// emitTiers emits what matches, tier by tier.
func (q *query) emitTiers() {
	for t := tierWholeHead; t < tierBegun && !q.done(); t++ {
		part := q.upTo(t)
		if q.within != nil {
			part = q.both(part, rankSet{bits: q.within})
		}
		if part.bits == nil {
			continue
		}
		q.emit(&part, q.taken.bits, t)
		if !q.done() {
			q.taken.union(&part)
		}
		q.release(part)
	}
	q.emit(&q.match, q.taken.bits, tierBegun)
}

// emitInitials emits what has the filter's letter at the beginning of a word, then the rest.
func (q *query) emitInitials() {
	initials := q.withRune(&q.index.initials, q.judge.filter.theLetter())
	if q.within != nil {
		initials = q.both(initials, rankSet{bits: q.within})
	}
	q.emit(&initials, q.taken.bits, tierBegun)
	if !q.done() {
		q.taken.union(&initials)
	}
	q.release(initials)
	q.emit(&q.match, q.taken.bits, tierLenient)
}

// emit emits the ranks of a set that are not in others. It only counts those before the window.
func (q *query) emit(set *rankSet, others bitset.Set, t tier) {
	for i, word := range set.each {
		if q.done() {
			return
		}
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
