package textindex

import "slices"

// wordFinder finds the documents that have the words of a filter. For the tiers, it keeps what it found for a word, and adds
// what the next tier has beyond it.
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
	set  rankSet // the documents that have it, up to the tier upTo
	upTo tier    // 0 if nothing was looked up
}

// begin prepares for a filter.
func (wf *wordFinder) begin(x *Index, a *asked, how leniency, sets *rankSets) {
	wf.index, wf.asked, wf.how, wf.sets = x, a, how, sets
}

// end drops what was found, but for memory.
func (wf *wordFinder) end() {
	for i := range wf.found {
		f := &wf.found[i]
		wf.sets.release(f.set)
		f.wanted, f.set, f.upTo = nil, rankSet{}, 0
	}
	wf.index, wf.asked, wf.sets, wf.found = nil, nil, nil, wf.found[:0]
}

// upTo returns the documents whose words are in a tier or a better one, of those for words. The next call must be for a later
// tier.
func (wf *wordFinder) upTo(t tier) (found rankSet) {
	if !wf.has(t) {
		return wf.sets.set()
	}
	for _, s := range wf.asked.segments {
		found = wf.sets.both(found, wf.segment(s, t))
	}
	return found
}

// find returns the documents that match. As soon as some of the words, the rarest first, leave no more than a few, it returns
// these, and that they need not have the other words: to look at each is sooner done.
func (wf *wordFinder) find(few int) (found rankSet, all bool) {
	if !wf.has(tierBegun) {
		return wf.sets.set(), true
	}
	var room [8]sized
	segments := room[:0]
	for i := range wf.asked.segments {
		segments = append(segments, sized{i, wf.size(wf.asked.segments[i])})
	}
	slices.SortFunc(segments, func(a, b sized) int { return int(a.size) - int(b.size) })
	for i, s := range segments {
		found = wf.sets.both(found, wf.segment(wf.asked.segments[s.segment], tierBegun))
		if i+1 < len(segments) && found.count() <= few {
			return found, false
		}
	}
	return found, true
}

// sized is a segment of the filter, and about how many bytes of postings it has.
type sized struct {
	segment int
	size    uint32
}

// size returns about how many documents a segment finds, in bytes of postings.
func (wf *wordFinder) size(s segment) (size uint32) {
	for _, way := range s {
		least := ^uint32(0)
		for i := range way {
			if way[i].run != nil {
				least = min(least, wf.size(way[i].run))
			}
			for k := range way[i].words {
				least = min(least, wf.resolved(&way[i].words[k]).size(wf.index))
			}
		}
		size += least
	}
	return size
}

// size returns how many bytes of postings the words have.
func (r *resolved) size(x *Index) (size uint32) {
	for _, s := range r.whole {
		if !r.begins(s) {
			size += x.postings.size(s.from, s.to)
		}
	}
	for _, s := range r.begun {
		size += x.postings.size(s.from, s.to)
	}
	return size
}

// has reports whether the index has words for each segment, whole ones if the tier asks for them.
func (wf *wordFinder) has(t tier) bool {
	return !slices.ContainsFunc(wf.asked.segments, func(s segment) bool { return !wf.hasOne(s, t) })
}

// hasOne reports whether it has words for one of the ways to say a segment.
func (wf *wordFinder) hasOne(s segment, t tier) bool {
	return slices.ContainsFunc(s, func(way []need) bool {
		for i := range way {
			if !wf.hasNeed(&way[i], t) {
				return false
			}
		}
		return true
	})
}

func (wf *wordFinder) hasNeed(n *need, t tier) bool {
	if n.run != nil {
		return wf.hasOne(n.run, t)
	}
	return wf.hasAll(n.words, t) || n.joined != nil && wf.hasAll(n.joined, t)
}

func (wf *wordFinder) hasAll(words []wanted, t tier) bool {
	for i := range words {
		if f := wf.resolved(&words[i]); len(f.whole) == 0 && (t <= tierWhole || len(f.begun) == 0) {
			return false
		}
	}
	return true
}

// onlyBegunInHeads reports whether all that matches is in tierBegunHead, as it is for the beginning of most codes: no words
// fit as a whole, and those that fit are in heads alone.
func (wf *wordFinder) onlyBegunInHeads() bool {
	if wf.has(tierWhole) {
		return false
	}
	for _, f := range wf.found {
		if wf.index.postings.hasTails(f.whole) || wf.index.postings.hasTails(f.begun) {
			return false
		}
	}
	return true
}

// segment returns the documents that have one of the ways to say a segment.
func (wf *wordFinder) segment(s segment, t tier) (found rankSet) {
	for _, way := range s {
		var room [4]rankSet
		all := room[:0]
		for i := range way {
			all = append(all, wf.need(&way[i], t))
		}
		found = wf.sets.either(found, wf.sets.all(all))
	}
	return found
}

func (wf *wordFinder) need(n *need, t tier) rankSet {
	if n.run != nil {
		return wf.segment(n.run, t)
	}
	var room [4]rankSet
	words := room[:0]
	for i := range n.words {
		words = append(words, wf.word(&n.words[i], t))
	}
	found := wf.sets.all(words)
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
	if t == tierBegun {
		return wf.all(&f.resolved)
	}
	if f.upTo == 0 {
		f.set, f.upTo = wf.sets.set(), tierTerm
	}
	for f.upTo < t {
		f.upTo++
		wf.index.add(&f.set, &f.resolved, f.upTo)
	}
	lent := f.set
	lent.lent = true
	return lent
}

// all returns the documents with a word that fits.
func (wf *wordFinder) all(r *resolved) rankSet {
	set := wf.sets.set()
	for _, s := range r.begun {
		wf.index.addWords(&set, s.from, s.to)
	}
	for _, s := range r.whole {
		if !r.begins(s) {
			wf.index.addWords(&set, s.from, s.to)
		}
	}
	return set
}

// add adds the documents that a tier has beyond the one before it.
func (x *Index) add(dst *rankSet, r *resolved, t tier) {
	switch t {
	case tierWholeHead:
		for _, s := range r.whole {
			x.addHeads(dst, s.from, s.to)
		}
	case tierWhole:
		for _, s := range r.whole {
			x.postings.uniteTails(dst, s.from, s.to)
		}
	case tierBegunHead:
		for _, s := range r.begun {
			x.addHeads(dst, s.from, s.to)
		}
	}
}

// common returns the documents with a word that fits so well if these are one of the sets that are kept.
func (wf *wordFinder) common(f *found, t tier) (rankSet, bool) {
	switch {
	case t == tierBegunHead && len(f.begun) == 1 && len(f.whole) == 0:
		return wf.index.common.headSet(f.begun[0].from, f.begun[0].to, len(wf.index.order))
	case t == tierBegun && len(f.begun) == 1 && f.covered():
		return wf.index.common.set(f.begun[0].from, f.begun[0].to, len(wf.index.order))
	case t != tierWholeHead && len(f.whole) == 1 && (t == tierWhole || len(f.begun) == 0):
		return wf.index.common.set(f.whole[0].from, f.whole[0].to, len(wf.index.order))
	}
	return rankSet{}, false
}
