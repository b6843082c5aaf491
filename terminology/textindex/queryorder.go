package textindex

import "math/bits"

// fewMatches is up to how many documents are looked at one by one, for a microsecond or two each, rather than found tier by
// tier.
const fewMatches = 16

// rankEach ranks what may match, and has not been emitted, by looking at each, and returns how many of these match.
func (q *query) rankEach(match *rankSet) (total int) {
	var tiers [tierNone][]Hit
	for i, word := range match.each {
		for word &^= q.page.taken.bits[i]; word != 0; word &= word - 1 {
			doc := q.index.order[i*64+bits.TrailingZeros64(word)]
			if tier := q.judge.tier(doc); tier != tierNone {
				tiers[tier] = append(tiers[tier], Hit{Doc: doc, tier: tier})
				total++
			}
		}
	}
	for _, hits := range tiers {
		for _, h := range hits {
			q.page.take(h)
		}
	}
	return total
}

// rank orders what matches, as far as it is wanted.
func (q *query) rank(match *rankSet) {
	if q.page.done() {
		return
	}
	q.emitCodes(match)
	q.emitTerms(match)
	switch {
	case q.page.done():
	case q.judge.filter.letter != nil:
		q.emitInitials(match)
	case q.words.onlyBegunInHeads():
		q.emitMeant(match)
		q.page.last(match, tierBegunHead)
	case q.page.total <= fewMatches:
		q.rankEach(match)
	default:
		q.emitTiers(match)
	}
}

// emitCodes emits what matches and whose code is the filter. Nil stands for all, as the code of a document is one of
// its words.
func (q *query) emitCodes(match *rankSet) {
	for _, rank := range q.index.whole.codes.find(q.judge.filter.joined) {
		if match == nil || match.has(rank) {
			q.page.rank(rank, tierCode)
		}
		if q.page.done() {
			return
		}
	}
}

// emitTerms emits what matches, can be chosen, and whose display is the filter. Nil stands for all.
func (q *query) emitTerms(match *rankSet) {
	lines := q.judge.asked.lines
	if len(lines) == 1 {
		for _, rank := range q.index.whole.displays.find(lines[0]) {
			if q.page.done() || int(rank) >= q.index.chosen {
				return
			}
			if match == nil || match.has(rank) {
				q.page.rank(rank, tierTerm)
			}
		}
		return
	}
	q.emitDisplayed(lines, match.has, tierTerm)
}

// emitMeant emits what matches, can be chosen, and whose display is what a synonym names for words that begin so. Nil stands
// for all.
func (q *query) emitMeant(match *rankSet) {
	matches := func(rank uint32) bool { return q.judge.tier(q.index.order[rank]) != tierNone }
	if match != nil {
		matches = match.has
	}
	q.emitDisplayed(q.judge.asked.meant, matches, tierMeant)
}

// emitDisplayed emits what matches, can be chosen, and whose display is one of some lines.
func (q *query) emitDisplayed(lines [][]byte, matches func(rank uint32) bool, t tier) {
	if q.page.done() || len(lines) == 0 {
		return
	}
	found := q.sets.set()
	for _, line := range lines {
		for _, rank := range q.index.whole.displays.find(line) {
			if int(rank) < q.index.chosen && matches(rank) {
				found.add(rank)
			}
		}
	}
	q.page.set(&found, t)
	q.sets.release(found)
}

// emitTiers emits what matches, tier by tier.
func (q *query) emitTiers(match *rankSet) {
	for t := tierWholeHead; t < tierBegun && !q.page.done(); t++ {
		if t == tierMeant {
			q.emitMeant(match)
			continue
		}
		part := q.words.upTo(t)
		if q.within != nil {
			part = q.sets.both(part, rankSet{bits: q.within})
		}
		if part.bits == nil {
			continue
		}
		q.page.set(&part, t)
		q.sets.release(part)
	}
	q.page.last(match, tierBegun)
}

// emitInitials emits what has the filter's letter at the beginning of a word, then the rest.
func (q *query) emitInitials(match *rankSet) {
	initials := q.withRune(letterFirst, q.judge.filter.theLetter())
	if q.within != nil {
		initials = q.sets.both(initials, rankSet{bits: q.within})
	}
	q.page.set(&initials, tierBegun)
	q.sets.release(initials)
	q.page.last(match, tierLenient)
}
