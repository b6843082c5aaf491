package textindex

// upTo returns the documents whose words are in a tier or a better one, of those for words.
func (q *query) upTo(t tier) (found rankSet) {
	for _, s := range q.judge.asked.segments {
		found = q.both(found, q.segment(s, t))
	}
	return found
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

// word returns the documents with a word that fits so well.
func (q *query) word(w *wanted, t tier) rankSet {
	x, r := q.index, &q.words
	x.resolve(r, w)
	if q.how == withinWords && w.isLong() {
		r.begun = append(r.begun, x.containing(w.word)...)
	}
	if len(r.whole)+len(r.begun) == 1 || t == tierBegun && len(r.begun) == 1 && r.covered() {
		return q.wordsOf(append(r.begun, r.whole...)[0], t, len(r.whole) == 1 && len(r.begun) == 0)
	}
	found := q.set()
	for _, s := range r.whole {
		if t == tierWholeHead {
			x.addHeads(&found, s.from, s.to)
		} else {
			x.addWords(&found, s.from, s.to)
		}
	}
	for _, s := range r.begun {
		switch t {
		case tierBegunHead:
			x.addHeads(&found, s.from, s.to)
		case tierBegun:
			x.addWords(&found, s.from, s.to)
		}
	}
	return found
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

// wordsOf returns the documents with one of a range of words, which fit as whole words or only begin so.
func (q *query) wordsOf(s span, t tier, whole bool) rankSet {
	x := q.index
	all := t == tierBegun || t == tierWhole && whole || t == tierBegunHead && whole
	if common, ok := x.common.set(s.from, s.to, len(x.order)); ok && all {
		return common
	}
	found := q.set()
	switch {
	case all:
		x.unite(&found, 2*s.from, 2*s.to)
	case t == tierBegunHead || whole:
		x.addHeads(&found, s.from, s.to)
	}
	return found
}
