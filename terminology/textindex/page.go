package textindex

import "math/bits"

// page is the hits from one position up to another. Documents are emitted in order, each once.
type page struct {
	order    []uint32 // the document of each rank
	from, to int
	total    int // up to how many there are in all
	at       int // how many have been emitted
	taken    rankSet
	hits     []Hit
}

// largestKept is up to how many hits a page keeps its memory for the next query.
const largestKept = 256

// begin makes a page empty.
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

// done reports whether all that is wanted has been emitted.
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

// ranks emits ranks, until the page is full.
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

// last is set for what nothing follows. It only counts what is before the page.
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
