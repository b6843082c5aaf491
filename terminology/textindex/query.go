package textindex

import (
	"math/bits"
	"sync"

	"github.com/caddy-fhir/caddy-fhir/terminology/internal/bitset"
)

// query is a search for one filter in an index. Queries are pooled so that the memory of their sets is reused.
type query struct {
	index    *Index
	ranks    bitset.Set // ranks to search; nil means all
	leniency leniency
	matcher  tierMatcher

	sets  rankSets
	words wordFinder
	page  page
}

var queries = sync.Pool{New: func() any { return new(query) }}

// findRune returns the documents that contain a letter or sign of this kind.
func (q *query) findRune(kind byte, r rune) rankSet {
	word, ok := q.index.words.find(appendRuneWord(nil, kind, r))
	if !ok {
		return q.sets.newSet()
	}
	if kept, ok := q.index.common.set(word, word+1, len(q.index.order)); ok {
		return kept
	}
	found := q.sets.newSet()
	q.index.addWords(&found, word, word+1)
	return found
}

// maxRankedEach is the maximum number of candidates that are examined one by one, at one or two microseconds each, instead of
// tier by tier.
const maxRankedEach = 16

// rankEach examines each candidate that has not been emitted, emits those that match in order, and returns their number.
func (q *query) rankEach(match *rankSet) (total int) {
	var tiers [tierNone][]Hit
	for i, word := range match.each {
		for word &^= q.page.emitted.bits[i]; word != 0; word &= word - 1 {
			doc := q.index.order[i*64+bits.TrailingZeros64(word)]
			if tier := q.matcher.tier(doc); tier != tierNone {
				tiers[tier] = append(tiers[tier], Hit{Doc: doc, tier: tier})
				total++
			}
		}
	}
	for _, hits := range tiers {
		for _, h := range hits {
			q.page.emit(h)
		}
	}
	return total
}

// rank emits the matches in order, but only as many as the page needs.
func (q *query) rank(match *rankSet) {
	if q.page.isDone() {
		return
	}
	q.emitCodes(match)
	q.emitExactDisplays(match)
	switch {
	case q.page.isDone():
	case q.matcher.filter.letter != nil:
		q.emitInitials(match)
	case q.words.matchesOnlyHeadPrefixes():
		q.emitSynonyms(match)
		q.page.emitLastSet(match, tierPrefixHead)
	case q.page.total <= maxRankedEach:
		q.rankEach(match)
	default:
		q.emitTiers(match)
	}
}

// emitCodes emits the matches with a code that equals the filter. A nil match means all documents, because a document's code is
// one of its words.
func (q *query) emitCodes(match *rankSet) {
	for _, rank := range q.index.exactTexts.codes.find(q.matcher.filter.joinedWords) {
		if match == nil || match.has(rank) {
			q.page.emitRank(rank, tierCode)
		}
		if q.page.isDone() {
			return
		}
	}
}

// emitExactDisplays emits the selectable matches with a display that equals the filter. A nil match means all documents.
func (q *query) emitExactDisplays(match *rankSet) {
	lines := q.matcher.prepared.lines
	if len(lines) == 1 {
		for _, rank := range q.index.exactTexts.displays.find(lines[0]) {
			if q.page.isDone() || int(rank) >= q.index.selectableCount {
				return
			}
			if match == nil || match.has(rank) {
				q.page.emitRank(rank, tierTerm)
			}
		}
		return
	}
	q.emitDisplays(lines, match.has, tierTerm)
}

// emitSynonyms emits the selectable matches that have a display equal to a synonym with typed words that begin with the filter.
// If match is nil, it checks whether each document matches.
func (q *query) emitSynonyms(match *rankSet) {
	matches := func(rank uint32) bool { return q.matcher.tier(q.index.order[rank]) != tierNone }
	if match != nil {
		matches = match.has
	}
	q.emitDisplays(q.matcher.prepared.synonymLines, matches, tierSynonym)
}

// emitDisplays emits the selectable matches with a display that equals any of the lines.
func (q *query) emitDisplays(lines [][]byte, matches func(rank uint32) bool, t tier) {
	if q.page.isDone() || len(lines) == 0 {
		return
	}
	found := q.sets.newSet()
	for _, line := range lines {
		for _, rank := range q.index.exactTexts.displays.find(line) {
			if int(rank) < q.index.selectableCount && matches(rank) {
				found.add(rank)
			}
		}
	}
	q.page.emitSet(&found, t)
	q.sets.release(found)
}

// emitTiers emits the matches tier by tier.
func (q *query) emitTiers(match *rankSet) {
	for t := tierWholeWordsHead; t < tierPrefix && !q.page.isDone(); t++ {
		if t == tierSynonym {
			q.emitSynonyms(match)
			continue
		}
		part := q.words.findUpTo(t)
		if q.ranks != nil {
			part = q.sets.intersect(part, rankSet{bits: q.ranks})
		}
		if part.bits == nil {
			continue
		}
		q.page.emitSet(&part, t)
		q.sets.release(part)
	}
	q.page.emitLastSet(match, tierPrefix)
}

// emitInitials emits the matches that have the letter of the filter at the beginning of a word, then the others.
func (q *query) emitInitials(match *rankSet) {
	initials := q.findRune(kindLetterFirst, q.matcher.filter.onlyLetter())
	if q.ranks != nil {
		initials = q.sets.intersect(initials, rankSet{bits: q.ranks})
	}
	q.page.emitSet(&initials, tierPrefix)
	q.sets.release(initials)
	q.page.emitLastSet(match, tierLenient)
}

// rankWord emits the matches of a filter that consists of one word and returns their number.
//
// The first documents stored for a range are sufficient if the page ends within them: any of them that an earlier tier has
// emitted is already part of the page.
func (q *query) rankWord(w *queryWord) (total int) {
	f := q.words.lookUp(w)
	i, common := 0, false
	if len(f.prefixes) == 1 && f.allInPrefixes() {
		i, common = q.index.common.find(f.prefixes[0].from, f.prefixes[0].to)
	}
	if common {
		q.page.total = int(q.index.common.count[i])
	}
	if !q.page.isDone() {
		if f.hasExact {
			q.emitCodes(nil)
			q.emitExactDisplays(nil)
		}
		q.emitWholeWords(&f.resolvedWord, 0, tierWholeWordsHead)
		q.emitWholeWords(&f.resolvedWord, q.index.words.len(), tierWholeWords)
		q.emitSynonyms(nil)
	}
	if common && q.page.to <= firstsPerRange {
		heads, tails := q.index.common.firstOf(i)
		q.page.emitRanks(heads, tierPrefixHead)
		q.page.emitRanks(tails, tierPrefix)
		return q.page.total
	}
	return q.emitPrefix(&f.resolvedWord)
}

// emitWholeWords emits the documents that contain a whole-word match. lists is the offset of the lists of postings: 0 for
// heads, or the number of words for other positions.
func (q *query) emitWholeWords(r *resolvedWord, lists int, t tier) {
	if q.page.isDone() || len(r.wholeWords) == 0 {
		return
	}
	set := q.sets.newSet()
	for _, s := range r.wholeWords {
		if q.page.to > firstsPerRange {
			q.index.postings.unite(&set, lists+s.from, lists+s.to)
			continue
		}
		for word := s.from; word < s.to; word++ {
			q.index.postings.uniteFirst(&set, lists+word, q.page.to)
		}
	}
	q.page.emitSet(&set, t)
	q.sets.release(set)
}

// emitPrefix emits the documents that contain a prefix or whole-word match. Documents with a match in a head come first. It
// returns the number of all matches.
func (q *query) emitPrefix(r *resolvedWord) (total int) {
	x, set := q.index, q.sets.newSet()
	for _, s := range r.prefixes {
		x.addHeads(&set, s.from, s.to)
	}
	if !q.page.isDone() {
		q.page.emitSet(&set, tierPrefixHead)
	}
	for _, s := range r.prefixes {
		x.postings.uniteTails(&set, s.from, s.to)
	}
	for _, s := range r.wholeWords {
		if !r.isInPrefixes(s) {
			x.addHeads(&set, s.from, s.to)
			x.postings.uniteTails(&set, s.from, s.to)
		}
	}
	q.page.emitLastSet(&set, tierPrefix)
	total = set.count()
	q.sets.release(set)
	return total
}

// page collects the hits in positions [from, to). Each document is emitted at most once, and documents are emitted in order.
type page struct {
	order        []uint32 // documents by rank
	from, to     int
	total        int // upper bound on the number of hits
	emittedCount int // number of documents emitted so far
	emitted      rankSet
	hits         []Hit
}

// maxPooledHits is the maximum capacity of hits that a page reuses for the next query.
const maxPooledHits = 256

// reset prepares the page for the next query.
func (p *page) reset(order []uint32, from, to int) {
	p.order, p.from, p.to, p.total, p.emittedCount, p.hits = order, from, to, len(order), 0, p.hits[:0]
	p.emitted.reset(len(order))
}

// finish returns the hits. The page does not retain or reuse their memory.
func (p *page) finish() []Hit {
	p.order = nil
	hits := p.hits
	if cap(hits) > maxPooledHits {
		p.hits = nil
		return hits
	}
	return append(make([]Hit, 0, len(hits)), hits...)
}

// isDone reports whether the page is complete, so no more documents need to be emitted.
func (p *page) isDone() bool { return p.emittedCount >= p.to || p.emittedCount >= p.total }

// emit counts a hit and adds it to the hits if its position is on the page.
func (p *page) emit(h Hit) {
	if p.emittedCount >= p.from && p.emittedCount < p.to {
		p.hits = append(p.hits, h)
	}
	p.emittedCount++
}

// emitRank emits the document with this rank unless it has been emitted.
func (p *page) emitRank(rank uint32, t tier) {
	if !p.emitted.has(rank) {
		p.emitted.add(rank)
		p.emit(Hit{Doc: p.order[rank], tier: t})
	}
}

// emitRanks emits documents by rank until the page is complete.
func (p *page) emitRanks(ranks []uint32, t tier) {
	for _, rank := range ranks {
		if p.isDone() {
			return
		}
		p.emitRank(rank, t)
	}
}

// emitSet emits the documents in a set.
func (p *page) emitSet(set *rankSet, t tier) {
	p.emitLastSet(set, t)
	if !p.isDone() {
		p.emitted.union(set)
	}
}

// emitLastSet is like emitSet, but for the last set: it does not record ranks as emitted.
func (p *page) emitLastSet(set *rankSet, t tier) {
	for i, word := range set.each {
		if p.isDone() {
			return
		}
		word &^= p.emitted.bits[i]
		if n := bits.OnesCount64(word); p.emittedCount+n <= p.from {
			p.emittedCount += n
			continue
		}
		for ; word != 0; word &= word - 1 {
			p.emit(Hit{Doc: p.order[i*64+bits.TrailingZeros64(word)], tier: t})
		}
	}
}
