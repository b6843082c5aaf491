package textindex

import "slices"

// wordFinder finds the documents that have the words of a filter. It keeps what it resolved for the next tier.
type wordFinder struct {
	index *Index
	asked *asked
	how   leniency
	sets  *rankSets
	found []found // by word of the filter
}

// found is what the index has for a word of the filter.
type found struct {
	wanted *wanted
	resolved
}

// begin prepares for a filter.
func (wf *wordFinder) begin(x *Index, a *asked, how leniency, sets *rankSets) {
	wf.index, wf.asked, wf.how, wf.sets = x, a, how, sets
}

// end drops what was found, but for memory.
func (wf *wordFinder) end() {
	for i := range wf.found {
		wf.found[i].wanted = nil
	}
	wf.index, wf.asked, wf.sets, wf.found = nil, nil, nil, wf.found[:0]
}

// upTo returns the documents whose words are in a tier or a better one, of those for words.
func (wf *wordFinder) upTo(t tier) (found rankSet) {
	if !wf.has(t) {
		return wf.sets.set()
	}
	for _, s := range wf.asked.segments {
		found = wf.sets.both(found, wf.segment(s, t))
	}
	return found
}

// has reports whether the index has words for each segment, whole ones if the tier asks for them.
func (wf *wordFinder) has(t tier) bool {
	return !slices.ContainsFunc(wf.asked.segments, func(s segment) bool {
		return !slices.ContainsFunc(s, func(alternative []need) bool {
			for i := range alternative {
				n := &alternative[i]
				if !wf.hasAll(n.words, t) && (n.joined == nil || !wf.hasAll(n.joined, t)) {
					return false
				}
			}
			return true
		})
	})
}

func (wf *wordFinder) hasAll(words []wanted, t tier) bool {
	for i := range words {
		if f := wf.resolved(&words[i]); len(f.whole) == 0 && (t <= tierWhole || len(f.begun) == 0) {
			return false
		}
	}
	return true
}

// segment returns the documents that have one of the alternatives of a segment.
func (wf *wordFinder) segment(s segment, t tier) (found rankSet) {
	for _, alternative := range s {
		var all rankSet
		for i := range alternative {
			all = wf.sets.both(all, wf.need(&alternative[i], t))
		}
		found = wf.sets.either(found, all)
	}
	return found
}

func (wf *wordFinder) need(n *need, t tier) (found rankSet) {
	for i := range n.words {
		found = wf.sets.both(found, wf.word(&n.words[i], t))
	}
	for i := range n.joined {
		found = wf.sets.either(found, wf.word(&n.joined[i], t))
	}
	return found
}

// resolved returns the words of the index that fit one of the filter.
func (wf *wordFinder) resolved(w *wanted) *found {
	for i := range wf.found {
		if wf.found[i].wanted == w {
			return &wf.found[i]
		}
	}
	if len(wf.found) < cap(wf.found) {
		wf.found = wf.found[:len(wf.found)+1] // for the memory of its spans
	} else {
		wf.found = append(wf.found, found{})
	}
	f := &wf.found[len(wf.found)-1]
	f.wanted = w
	wf.index.resolve(&f.resolved, w)
	if wf.how == withinWords && w.isLong() {
		f.begun = append(f.begun, wf.index.containing(w.word)...)
	}
	return f
}

// word returns the documents with a word that fits so well.
func (wf *wordFinder) word(w *wanted, t tier) rankSet {
	f := wf.resolved(w)
	if all, ok := wf.common(f, t); ok {
		return all
	}
	x, set := wf.index, wf.sets.set()
	for _, s := range f.whole {
		inBegun := t >= tierBegunHead && f.begins(s)
		if !inBegun {
			x.addHeads(&set, s.from, s.to)
		}
		if t == tierWhole || t == tierBegunHead || t == tierBegun && !inBegun {
			x.addTails(&set, s.from, s.to)
		}
	}
	if t < tierBegunHead {
		return set
	}
	for _, s := range f.begun {
		if t == tierBegunHead {
			x.addHeads(&set, s.from, s.to)
		} else {
			x.addWords(&set, s.from, s.to)
		}
	}
	return set
}

// common returns the documents with a word that fits so well if these are one of the sets that are kept.
func (wf *wordFinder) common(f *found, t tier) (rankSet, bool) {
	switch {
	case t == tierBegun && len(f.begun) == 1 && f.covered():
		return wf.index.common.set(f.begun[0].from, f.begun[0].to, len(wf.index.order))
	case t != tierWholeHead && len(f.whole) == 1 && (t == tierWhole || len(f.begun) == 0):
		return wf.index.common.set(f.whole[0].from, f.whole[0].to, len(wf.index.order))
	}
	return rankSet{}, false
}
