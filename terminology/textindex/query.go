package textindex

import (
	"math/bits"
	"sync"

	"github.com/caddy-fhir/caddy-fhir/terminology/internal/bitset"
)

// query is the search for one filter in an index. Queries are pooled to reuse the memory of their sets.
type query struct {
	index  *Index
	within bitset.Set // ranks to search; nil for all
	how    leniency
	judge  judge

	sets  rankSets
	words wordFinder
	page  page
}

var queries = sync.Pool{New: func() any { return new(query) }}

// withRune returns the documents that have a letter or sign.
func (q *query) withRune(kind byte, r rune) rankSet {
	word, ok := q.index.words.find(appendRuneWord(nil, kind, r))
	if !ok {
		return q.sets.set()
	}
	if kept, ok := q.index.common.set(word, word+1, len(q.index.order)); ok {
		return kept
	}
	found := q.sets.set()
	q.index.addWords(&found, word, word+1)
	return found
}

// fewMatches is the maximum number of candidates that are examined individually, at a microsecond or two each, instead
// of tier by tier.
const fewMatches = 16

// rankEach examines each candidate not yet emitted, emits the matching ones in order, and returns their number.
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

// rank emits the matches in order, up to the number that the page needs.
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

// emitCodes emits the matches with a code equal to the filter. A nil match means all documents; the code of a
// document is one of its words.
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

// emitTerms emits the selectable matches with a display equal to the filter. A nil match means all documents.
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

// emitMeant emits the selectable matches with a display equal to a synonym with typed words that begin with the filter. A
// nil match means all documents.
func (q *query) emitMeant(match *rankSet) {
	matches := func(rank uint32) bool { return q.judge.tier(q.index.order[rank]) != tierNone }
	if match != nil {
		matches = match.has
	}
	q.emitDisplayed(q.judge.asked.meant, matches, tierMeant)
}

// emitDisplayed emits the selectable matches with a display equal to any of the lines.
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

// emitTiers emits the matches tier by tier.
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

// emitInitials emits the matches with the filter's letter at the beginning of a word, then the others.
func (q *query) emitInitials(match *rankSet) {
	initials := q.withRune(letterFirst, q.judge.filter.theLetter())
	if q.within != nil {
		initials = q.sets.both(initials, rankSet{bits: q.within})
	}
	q.page.set(&initials, tierBegun)
	q.sets.release(initials)
	q.page.last(match, tierLenient)
}

// rankWord emits the matches of a one-word filter and returns their number.
//
// The first documents stored for a range suffice for a page that ends within them: any of them that an earlier tier
// emitted already counts towards the page.
func (q *query) rankWord(w *wanted) (total int) {
	f := q.words.resolved(w)
	i, common := 0, false
	if len(f.begun) == 1 && f.covered() {
		i, common = q.index.common.find(f.begun[0].from, f.begun[0].to)
	}
	if common {
		q.page.total = int(q.index.common.count[i])
	}
	if !q.page.done() {
		if f.exact {
			q.emitCodes(nil)
			q.emitTerms(nil)
		}
		q.emitWhole(&f.resolved, 0, tierWholeHead)
		q.emitWhole(&f.resolved, q.index.words.len(), tierWhole)
		q.emitMeant(nil)
	}
	if common && q.page.to <= firsts {
		heads, tails := q.index.common.firstOf(i)
		q.page.ranks(heads, tierBegunHead)
		q.page.ranks(tails, tierBegun)
		return q.page.total
	}
	return q.emitBegun(&f.resolved)
}

// emitWhole emits the documents with a whole-word match, in a head or elsewhere; lists is the offset of the
// corresponding postings.
func (q *query) emitWhole(r *resolved, lists int, t tier) {
	if q.page.done() || len(r.whole) == 0 {
		return
	}
	set := q.sets.set()
	for _, s := range r.whole {
		if q.page.to > firsts {
			q.index.postings.unite(&set, lists+s.from, lists+s.to)
			continue
		}
		for word := s.from; word < s.to; word++ {
			q.index.postings.uniteFirst(&set, lists+word, q.page.to)
		}
	}
	q.page.set(&set, t)
	q.sets.release(set)
}

// emitBegun emits the documents with a prefix or whole-word match, with matches in a head first. It returns the number of all
// matches.
func (q *query) emitBegun(r *resolved) (total int) {
	x, set := q.index, q.sets.set()
	for _, s := range r.begun {
		x.addHeads(&set, s.from, s.to)
	}
	if !q.page.done() {
		q.page.set(&set, tierBegunHead)
	}
	for _, s := range r.begun {
		x.postings.uniteTails(&set, s.from, s.to)
	}
	for _, s := range r.whole {
		if !r.begins(s) {
			x.addHeads(&set, s.from, s.to)
			x.postings.uniteTails(&set, s.from, s.to)
		}
	}
	q.page.last(&set, tierBegun)
	total = set.count()
	q.sets.release(set)
	return total
}

// page collects the hits of a range of positions. Each document is emitted once, in order.
type page struct {
	order    []uint32 // document by rank
	from, to int
	total    int // upper bound on the number of hits
	at       int // number of emitted documents
	taken    rankSet
	hits     []Hit
}

// largestKept is the maximum capacity of the hits that a page keeps for the next query.
const largestKept = 256

// begin resets the page.
func (p *page) begin(order []uint32, from, to int) {
	p.order, p.from, p.to, p.total, p.at, p.hits = order, from, to, len(order), 0, p.hits[:0]
	p.taken.empty(len(order))
}

// end returns the hits.
func (p *page) end() []Hit {
	p.order = nil
	hits := p.hits
	if cap(hits) > largestKept {
		p.hits = nil
		return hits
	}
	return append(make([]Hit, 0, len(hits)), hits...)
}

// done reports whether no more documents need to be emitted.
func (p *page) done() bool { return p.at >= p.to || p.at >= p.total }

// take emits a hit.
func (p *page) take(h Hit) {
	if p.at >= p.from && p.at < p.to {
		p.hits = append(p.hits, h)
	}
	p.at++
}

// rank emits a rank.
func (p *page) rank(rank uint32, t tier) {
	if !p.taken.has(rank) {
		p.taken.add(rank)
		p.take(Hit{Doc: p.order[rank], tier: t})
	}
}

// ranks emits ranks until the page is full.
func (p *page) ranks(ranks []uint32, t tier) {
	for _, rank := range ranks {
		if p.done() {
			return
		}
		p.rank(rank, t)
	}
}

// set emits the ranks of a set.
func (p *page) set(set *rankSet, t tier) {
	p.last(set, t)
	if !p.done() {
		p.taken.union(set)
	}
}

// last is like set, but for the final set. It does not record the ranks as emitted, and only counts the ranks before the page.
func (p *page) last(set *rankSet, t tier) {
	for i, word := range set.each {
		if p.done() {
			return
		}
		word &^= p.taken.bits[i]
		if n := bits.OnesCount64(word); p.at+n <= p.from {
			p.at += n
			continue
		}
		for ; word != 0; word &= word - 1 {
			p.take(Hit{Doc: p.order[i*64+bits.TrailingZeros64(word)], tier: t})
		}
	}
}
