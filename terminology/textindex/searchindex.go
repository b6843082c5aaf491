package textindex

import (
	"bytes"
	"math"
	"math/bits"
	"slices"
	"sort"

	"github.com/caddy-fhir/caddy-fhir/terminology/internal/bitset"
)

// searchIndex returns the hits from position from up to to, and how many there are in all.
func searchIndex(x *Index, within bitset.Set, f *Filter, how leniency, from, to int) ([]Hit, int) {
	q := queries.Get().(*query)
	q.index, q.within, q.how = x, within, how
	q.judge.filter, q.judge.asked, q.judge.divided = f, f.in(x.language), x.divided
	q.judge.reader.corpus, q.judge.reader.spotter.language = x.corpus, x.language
	q.sets.n = len(x.order)
	q.words.begin(x, q.judge.asked, how, &q.sets)
	q.page.begin(x.order, from, to)
	total := q.search()
	hits := q.page.end() // not the index's memory, which may be unmapped from here on
	q.words.end()
	q.index, q.within = nil, nil
	q.judge.filter, q.judge.asked, q.judge.divided = nil, nil, nil
	q.judge.reader.forget()
	queries.Put(q)
	return hits, total
}

// search finds and ranks hits, and returns how many there are.
func (q *query) search() (total int) {
	if w := q.judge.asked.only(); w != nil && q.how == strictly && q.within == nil {
		return q.rankWord(w)
	}
	match, all := q.find()
	if q.within != nil {
		match = q.sets.both(match, rankSet{bits: q.within})
	}
	switch {
	case !all:
		total = q.rankEach(&match)
	case q.how != strictly:
		total = match.count()
		q.page.last(&match, tierLenient)
	default:
		total = match.count()
		q.page.total = total
		q.rank(&match)
	}
	q.sets.release(match)
	return total
}

// find returns what matches, or, unless all does, what may match and must be looked at.
func (q *query) find() (match rankSet, all bool) {
	f := q.judge.filter
	switch {
	case f.symbols != nil:
		return q.findSymbols(string(f.symbols)), false
	case f.letter != nil:
		return q.withRune(letterAnywhere, f.theLetter()), true
	case q.how != strictly:
		return q.words.upTo(tierBegun), true
	}
	return q.words.find(fewMatches)
}

// findSymbols returns the documents that have each of the symbols.
func (q *query) findSymbols(symbols string) (found rankSet) {
	for _, r := range symbols {
		if r != ' ' {
			found = q.sets.both(found, q.withRune(signAnywhere, r))
		}
	}
	return found
}

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

// resolved are the words of an index that fit a word of the filter.
type resolved struct {
	whole, begun []span
	exact        bool // whether the word itself is among them
}

// resolve finds what [wanted.fit] says of all words of the index.
func (x *Index) resolve(r *resolved, w *wanted) {
	r.whole, r.begun = r.whole[:0], r.begun[:0]
	from, to := x.words.prefixed(w.word)
	r.add(x, w.word, from, to)
	r.exact = len(r.whole) > 0
	if w.begins {
		r.begun = appendSpan(r.begun, from, to)
	}
	for _, same := range w.same {
		from, to := x.words.prefixed(same)
		r.add(x, same, from, to)
	}
	if !bytes.Equal(w.spelled, w.word) {
		from, to := x.words.prefixed(w.spelled)
		r.add(x, w.spelled, from, to)
		if w.begins {
			r.begun = appendSpan(r.begun, from, to)
		}
	}
	r.spellings(x, w)
	r.inflections(x, w)
}

func appendSpan(spans []span, from, to int) []span {
	if from == to {
		return spans
	}
	return append(spans, span{from, to})
}

// add adds a word that the range of words beginning with it may have.
func (r *resolved) add(x *Index, word []byte, from, to int) {
	if from < to && len(x.words.at(from)) == len(word) {
		r.whole = append(r.whole, span{from, from + 1})
	}
}

// spellings adds the words that have another spelling which fits.
func (r *resolved) spellings(x *Index, w *wanted) {
	if len(w.word) < fewestStemmed {
		return
	}
	forms := &x.spelled.forms
	from, to := forms.prefixed(w.spelled)
	for i := from; i < to; i++ {
		id := int(x.spelled.ids[i])
		word := x.words.at(id)
		if len(forms.at(i)) == len(w.spelled) {
			if !bytes.Equal(word, w.word) {
				r.whole = append(r.whole, span{id, id + 1})
			}
		} else if w.begins && !bytes.HasPrefix(word, w.word) && !bytes.HasPrefix(word, w.spelled) {
			r.begun = append(r.begun, span{id, id + 1})
		}
	}
}

// inflections adds the words that have the same stem.
func (r *resolved) inflections(x *Index, w *wanted) {
	if w.stem == nil {
		return
	}
	for _, rank := range x.stems.find(w.stem) {
		id := int(rank)
		switch word := x.words.at(id); {
		case bytes.Equal(word, w.word):
		case inflects(word, w.word):
			r.whole = append(r.whole, span{id, id + 1})
		case w.begins && !bytes.HasPrefix(word, w.word):
			r.begun = append(r.begun, span{id, id + 1})
		}
	}
}

// begins reports whether a range of words is among those that begin so.
func (r *resolved) begins(s span) bool {
	return slices.ContainsFunc(r.begun, func(b span) bool { return b.from <= s.from && s.to <= b.to })
}

// covered reports whether the words that fit as a whole are among those that begin so.
func (r *resolved) covered() bool {
	return !slices.ContainsFunc(r.whole, func(s span) bool { return !r.begins(s) })
}

// containing returns the words that contain part. It goes through all words if one may, so it is used only if nothing
// else was found.
func (x *Index) containing(part []byte) (found []span) {
	if !x.pieces.mayContain(part) {
		return nil
	}
	for at := 0; ; {
		next := bytes.Index(x.words.text[at:], part)
		if next < 0 {
			return found
		}
		at += next
		word := sort.Search(len(x.words.from), func(i int) bool { return x.words.from[i] > uint32(at) }) - 1
		if end := int(x.words.from[word+1]); at+len(part) <= end {
			found = append(found, span{word, word + 1})
			at = end
		} else {
			at++ // the match spans two words
		}
	}
}

// rankSet is a set of ranks. Most filters match few of many documents, so emptying, counting and iterating over a set
// of one's own cost as much as it holds, not as it could hold.
type rankSet struct {
	bits bitset.Set
	used bitset.Set // which words of bits may not be zero; nil for a set of the index
	size int        // number of ranks, in a set of the index
	lent bool       // whether it is somebody else's, who still needs it as it is
}

// isOwn reports whether a set may be changed.
func (s *rankSet) isOwn() bool { return s.used != nil && !s.lent }

// inUse returns how many words of bits may not be zero.
func (s *rankSet) inUse() int {
	if s.used == nil {
		return len(s.bits)
	}
	return s.used.Count()
}

func (s *rankSet) has(rank uint32) bool { return s.bits.Has(rank) }

func (s *rankSet) add(rank uint32) {
	s.bits.Add(rank)
	s.used.Add(rank / 64)
}

// empty removes all ranks and makes room for those below n. All memory of bits is zero unless used says otherwise,
// including what is beyond its length.
func (s *rankSet) empty(n int) {
	for i, word := range s.used {
		if word != 0 {
			clear(s.bits[i*64 : min(i*64+64, len(s.bits))])
		}
	}
	clear(s.used)
	words := (n + 63) / 64
	if cap(s.bits) < words {
		s.bits, s.used = bitset.New(n), bitset.New(words)
	}
	s.bits, s.used = s.bits[:words], s.used[:(words+63)/64]
}

// useAll says that no word of bits need be zero.
func (s *rankSet) useAll() {
	for i := range s.used {
		s.used[i] = math.MaxUint64
	}
	if rest := len(s.bits) % 64; rest > 0 {
		s.used[len(s.used)-1] = 1<<rest - 1
	}
}

func (s *rankSet) union(other *rankSet) {
	if other.used == nil {
		bits := s.bits[:len(other.bits)]
		for i, word := range other.bits {
			bits[i] |= word
		}
		s.useAll()
		return
	}
	for i, word := range other.each {
		s.bits[i] |= word
		s.used.Add(uint32(i))
	}
}

// unionOf adds the intersection of two sets.
func (s *rankSet) unionOf(a *rankSet, b bitset.Set) {
	for i, word := range a.each {
		if word &= b[i]; word != 0 {
			s.bits[i] |= word
			s.used.Add(uint32(i))
		}
	}
}

// intersect keeps only what is also in another set.
func (s *rankSet) intersect(other bitset.Set) {
	for i, used := range s.used {
		for ; used != 0; used &= used - 1 {
			at := i*64 + bits.TrailingZeros64(used)
			if s.bits[at] &= other[at]; s.bits[at] == 0 {
				s.used.Remove(uint32(at))
			}
		}
	}
}

func (s *rankSet) count() int {
	if s.used == nil {
		return s.size
	}
	n := 0
	for i, used := range s.used {
		for ; used != 0; used &= used - 1 {
			n += bits.OnesCount64(s.bits[i*64+bits.TrailingZeros64(used)])
		}
	}
	return n
}

// each yields the nonzero words, in ascending order.
func (s *rankSet) each(yield func(i int, word uint64) bool) {
	if s.used == nil {
		for i, word := range s.bits {
			if word != 0 && !yield(i, word) {
				return
			}
		}
		return
	}
	for i, used := range s.used {
		for ; used != 0; used &= used - 1 {
			at := i*64 + bits.TrailingZeros64(used)
			if word := s.bits[at]; word != 0 && !yield(at, word) {
				return
			}
		}
	}
}

// rankSets is the memory of the sets of a query, and what is made of them.
type rankSets struct {
	n     int // ranks are below it
	spare []rankSet
}

// set returns an empty set.
func (r *rankSets) set() (s rankSet) {
	if last := len(r.spare) - 1; last >= 0 {
		s, r.spare = r.spare[last], r.spare[:last]
	}
	s.empty(r.n)
	return s
}

// release returns a set to spare.
func (r *rankSets) release(s rankSet) {
	if s.isOwn() {
		r.spare = append(r.spare, s)
	}
}

// all returns the intersection of sets, which must not be used afterwards. It begins with those that have the fewest words
// in use, and with sets of the index last.
func (r *rankSets) all(sets []rankSet) (all rankSet) {
	slices.SortFunc(sets, func(a, b rankSet) int { return a.inUse() - b.inUse() })
	for _, s := range sets {
		all = r.both(all, s)
	}
	return all
}

// both returns the intersection of two sets, which must not be used afterwards. The zero a stands for all ranks.
func (r *rankSets) both(a, b rankSet) rankSet {
	switch {
	case a.bits == nil:
		return b
	case a.isOwn():
		a.intersect(b.bits)
		r.release(b)
		return a
	case b.isOwn():
		b.intersect(a.bits)
		return b
	}
	if a.inUse() > b.inUse() {
		a, b = b, a
	}
	both := r.set()
	both.unionOf(&a, b.bits)
	return both
}

// either returns the union of two sets, which must not be used afterwards. The zero a stands for none.
func (r *rankSets) either(a, b rankSet) rankSet {
	switch {
	case a.bits == nil:
		return b
	case a.isOwn():
		a.union(&b)
		r.release(b)
		return a
	case b.isOwn():
		b.union(&a)
		return b
	}
	either := r.set()
	either.union(&a)
	either.union(&b)
	return either
}
