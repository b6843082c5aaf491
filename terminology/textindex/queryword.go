package textindex

// rankWord finds and ranks what begins with the only word of a filter, and returns how many there are.
//
// The tiers are those of single lists, of which a page needs no more than the first: whichever of these came in an
// earlier tier is on the page too.
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

// emitWhole emits the documents that have a word which fits as a whole, in a head or elsewhere: lists is where the
// lists of these begin.
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

// emitBegun emits the documents that have a word which fits or begins so, first those that have it in a head. It
// returns how many there are, with those that fit as a whole.
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
