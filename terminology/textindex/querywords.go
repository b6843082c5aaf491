package textindex

import "slices"

// found is what the index has for a word of the filter. It is kept for the next tier.
type found struct {
	wanted *wanted
	resolved
	heads rankSet // the documents that have a word in a head which begins so
}

// upTo returns the documents whose words are in a tier or a better one, of those for words.
func (q *query) upTo(t tier) (found rankSet) {
	if t <= tierWhole && !q.hasWhole() {
		return q.set()
	}
	for _, s := range q.judge.asked.segments {
		found = q.both(found, q.segment(s, t))
	}
	return found
}

// hasWhole reports whether the index has whole words for each segment.
func (q *query) hasWhole() bool {
	return !slices.ContainsFunc(q.judge.asked.segments, func(s segment) bool {
		return !slices.ContainsFunc(s, func(alternative []need) bool {
			for i := range alternative {
				n := &alternative[i]
				if !q.areWhole(n.words) && (n.joined == nil || !q.areWhole(n.joined)) {
					return false
				}
			}
			return true
		})
	})
}

func (q *query) areWhole(words []wanted) bool {
	for i := range words {
		if len(q.resolved(&words[i]).whole) == 0 {
			return false
		}
	}
	return true
}

// segment returns the documents that have one of the alternatives of a segment.
func (q *query) segment(s segment, t tier) (found rankSet) {
	for _, alternative := range s {
		var all rankSet
		for i := range alternative {
			all = q.both(all, q.need(&alternative[i], t))
		}
		found = q.either(found, all)
	}
	return found
}

func (q *query) need(n *need, t tier) (found rankSet) {
	for i := range n.words {
		found = q.both(found, q.word(&n.words[i], t))
	}
	for i := range n.joined {
		found = q.either(found, q.word(&n.joined[i], t))
	}
	return found
}

// resolved returns the words of the index that fit one of the filter.
func (q *query) resolved(w *wanted) *found {
	for i := range q.found {
		if q.found[i].wanted == w {
			return &q.found[i]
		}
	}
	if len(q.found) < cap(q.found) {
		q.found = q.found[:len(q.found)+1] // for the memory of its spans
	} else {
		q.found = append(q.found, found{})
	}
	f := &q.found[len(q.found)-1]
	f.wanted = w
	q.index.resolve(&f.resolved, w)
	if q.how == withinWords && w.isLong() {
		f.begun = append(f.begun, q.index.containing(w.word)...)
	}
	return f
}

// forget drops what was found, but for memory.
func (q *query) forget() {
	for i := range q.found {
		q.release(q.found[i].heads)
		q.found[i].wanted, q.found[i].heads = nil, rankSet{}
	}
	q.found = q.found[:0]
}

// word returns the documents with a word that fits so well.
func (q *query) word(w *wanted, t tier) rankSet {
	f := q.resolved(w)
	if all, ok := q.common(f, t); ok {
		return all
	}
	set := q.set()
	switch {
	case t <= tierWhole:
		q.addWhole(&set, f, t)
	case t == tierBegunHead:
		if len(f.begun) == 1 && f.covered() {
			q.addWholeTails(&set, f)
		} else {
			q.addWhole(&set, f, tierWhole)
		}
		q.addBegunHeads(&set, f)
	default:
		q.addAll(&set, f)
	}
	return set
}

// addWhole adds the documents that have a whole word, in a head or anywhere. For a filter of one word it adds no more of
// each word's than are wanted.
func (q *query) addWhole(set *rankSet, f *found, t tier) {
	x := q.index
	for _, s := range f.whole {
		switch {
		case q.firstOnly():
			for word := s.from; word < s.to; word++ {
				x.uniteFirst(set, word, q.to)
				if t == tierWhole {
					x.uniteFirst(set, x.words.len()+word, q.to)
				}
			}
		case t == tierWholeHead:
			if heads, ok := x.common.headSet(s.from, s.to, len(x.order)); ok {
				set.union(&heads)
			} else {
				x.addHeads(set, s.from, s.to)
			}
		default:
			x.addWords(set, s.from, s.to)
		}
	}
}

// addWholeTails is addWhole without what begins so in a head.
func (q *query) addWholeTails(set *rankSet, f *found) {
	for _, s := range f.whole {
		q.index.addTails(set, s.from, s.to)
	}
}

// firstOnly reports whether the first documents of each word are enough: there is only one word to look for, so that
// its first documents are the first of the tier, and few are wanted.
func (q *query) firstOnly() bool {
	return q.within == nil && q.to <= firsts && q.judge.asked.only() != nil
}

// addBegunHeads adds the documents that have a word in a head which begins so.
func (q *query) addBegunHeads(set *rankSet, f *found) {
	if len(f.begun) == 0 {
		return
	}
	if f.heads.bits == nil {
		f.heads = q.set()
		for _, s := range f.begun {
			if heads, ok := q.index.common.headSet(s.from, s.to, len(q.index.order)); ok {
				f.heads.union(&heads)
			} else {
				q.index.addHeads(&f.heads, s.from, s.to)
			}
		}
	}
	set.union(&f.heads)
}

// addAll adds the documents that have a word which is whole or begins so. It keeps those in heads, for the tier before,
// unless they are many.
func (q *query) addAll(set *rankSet, f *found) {
	x := q.index
	for _, s := range f.whole {
		if !slices.ContainsFunc(f.begun, func(b span) bool { return b.from <= s.from && s.to <= b.to }) {
			x.addWords(set, s.from, s.to)
		}
	}
	if slices.ContainsFunc(f.begun, func(s span) bool { _, ok := x.common.set(s.from, s.to, len(x.order)); return ok }) {
		for _, s := range f.begun {
			x.addWords(set, s.from, s.to)
		}
		return
	}
	q.addBegunHeads(set, f)
	for _, s := range f.begun {
		x.addTails(set, s.from, s.to)
	}
}

// common returns the documents with a word that fits so well if these are one of the sets that are kept.
func (q *query) common(f *found, t tier) (rankSet, bool) {
	switch {
	case t == tierBegun && len(f.begun) == 1 && f.covered():
		return q.index.common.set(f.begun[0].from, f.begun[0].to, len(q.index.order))
	case t != tierWholeHead && len(f.whole) == 1 && (t == tierWhole || len(f.begun) == 0):
		return q.index.common.set(f.whole[0].from, f.whole[0].to, len(q.index.order))
	}
	return rankSet{}, false
}

// covered reports whether the words that fit as a whole are in the only range of those that begin so.
func (r *resolved) covered() bool {
	for _, s := range r.whole {
		if s.from < r.begun[0].from || s.to > r.begun[0].to {
			return false
		}
	}
	return true
}
