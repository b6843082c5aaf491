package textindex

import (
	"bytes"
	"math"
	"math/bits"
	"slices"
	"sort"

	"github.com/caddy-fhir/caddy-fhir/terminology/internal/bitset"
)

// searchIndex returns the hits in positions from up to to, and the total number of hits.
func searchIndex(x *Index, within bitset.Set, f *Filter, how leniency, from, to int) ([]Hit, int) {
	q := queries.Get().(*query)
	q.index, q.within, q.how = x, within, how
	q.judge.filter, q.judge.asked, q.judge.divided = f, f.in(x.language), x.divided
	q.judge.reader.corpus, q.judge.reader.spotter.language = x.corpus, x.language
	q.sets.n = len(x.order)
	q.words.begin(x, q.judge.asked, how, &q.sets)
	q.page.begin(x.order, from, to)
	total := q.search()
	hits := q.page.end() // must not refer to the index's memory, which may be unmapped after this point
	q.words.end()
	q.index, q.within = nil, nil
	q.judge.filter, q.judge.asked, q.judge.divided = nil, nil, nil
	q.judge.reader.forget()
	queries.Put(q)
	return hits, total
}

// search finds and ranks the hits and returns their number.
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

// find returns the matches if all is set, and otherwise candidates that must be examined.
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

// findSymbols returns the documents that have every symbol.
func (q *query) findSymbols(symbols string) (found rankSet) {
	for _, r := range symbols {
		if r != ' ' {
			found = q.sets.both(found, q.withRune(signAnywhere, r))
		}
	}
	return found
}

// wordFinder finds the documents with the words of a filter. It keeps the documents found for each word and extends
// them from tier to tier.
type wordFinder struct {
	index *Index
	asked *asked
	how   leniency
	sets  *rankSets
	found []found // by word of the filter
}

// found is the lookup result for a word of the filter.
type found struct {
	wanted *wanted
	resolved
	set  rankSet // documents with the word, up to the tier upTo
	upTo tier    // 0 before the first lookup
}

// begin prepares the finder for a filter.
func (wf *wordFinder) begin(x *Index, a *asked, how leniency, sets *rankSets) {
	wf.index, wf.asked, wf.how, wf.sets = x, a, how, sets
}

// end resets the finder but keeps its memory.
func (wf *wordFinder) end() {
	for i := range wf.found {
		f := &wf.found[i]
		wf.sets.release(f.set)
		f.wanted, f.set, f.upTo = nil, rankSet{}, 0
	}
	wf.index, wf.asked, wf.sets, wf.found = nil, nil, nil, wf.found[:0]
}

// upTo returns the documents with words that match in tier t or better. Tiers must be passed in ascending order.
func (wf *wordFinder) upTo(t tier) (found rankSet) {
	if !wf.has(t) {
		return wf.sets.set()
	}
	for _, s := range wf.asked.segments {
		found = wf.sets.both(found, wf.segment(s, t))
	}
	return found
}

// find returns the matching documents. It looks up the rarest words first; once at most few candidates remain, it
// returns them with all unset, because examining them individually is faster.
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

// sized is a segment of the filter with an estimate of its postings in bytes.
type sized struct {
	segment int
	size    uint32
}

// size estimates the postings of a segment in bytes.
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

// size returns the size of the words' postings in bytes.
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

// has reports whether the index has words for every segment, whole words if the tier requires them.
func (wf *wordFinder) has(t tier) bool {
	return !slices.ContainsFunc(wf.asked.segments, func(s segment) bool { return !wf.hasOne(s, t) })
}

// hasOne reports whether the index has words for any alternative of a segment.
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

// onlyBegunInHeads reports whether all matches are in tierBegunHead, as is common for code prefixes: no whole word
// matches, and all matching words occur only in heads.
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

// segment returns the documents that match any alternative of a segment.
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

// resolved returns the words of the index that match a word of the filter.
func (wf *wordFinder) resolved(w *wanted) *found {
	for i := range wf.found {
		if wf.found[i].wanted == w {
			return &wf.found[i]
		}
	}
	if len(wf.found) < cap(wf.found) {
		wf.found = wf.found[:len(wf.found)+1] // reuses the memory of the spans
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

// word returns the documents with a word that matches in tier t or better.
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

// all returns the documents with any matching word.
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

// add adds the documents that a tier has in addition to the previous tier.
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

// common returns the stored set of the documents with a word that matches in tier t or better, if there is such a set.
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

// resolved contains the words of an index that match a word of the filter.
type resolved struct {
	whole, begun []span
	exact        bool // whether whole contains the word itself
}

// resolve applies [wanted.fit] to all words of the index.
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

// add adds word if it is the first of the range of words with that prefix.
func (r *resolved) add(x *Index, word []byte, from, to int) {
	if from < to && len(x.words.at(from)) == len(word) {
		r.whole = append(r.whole, span{from, from + 1})
	}
}

// spellings adds the words with a matching variant spelling.
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

// inflections adds the words with the same stem.
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

// begins reports whether a range of words is part of the prefix matches.
func (r *resolved) begins(s span) bool {
	return slices.ContainsFunc(r.begun, func(b span) bool { return b.from <= s.from && s.to <= b.to })
}

// covered reports whether all whole-word matches are part of the prefix matches.
func (r *resolved) covered() bool {
	return !slices.ContainsFunc(r.whole, func(s span) bool { return !r.begins(s) })
}

// containing returns the words that contain part. It may scan all words, so it is used only if nothing else matches.
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

// rankSet is a set of ranks. Most filters match few of many documents, so clearing, counting and iterating cost as much
// as the ranks in use, not as the capacity. Sets of the index do not track their use.
type rankSet struct {
	bits bitset.Set
	used bitset.Set // words of bits that may be nonzero; nil for sets that belong to the index
	size int        // number of ranks; only for sets that belong to the index
	lent bool       // whether the set is shared and must not be changed
}

// isOwn reports whether the set may be changed.
func (s *rankSet) isOwn() bool { return s.used != nil && !s.lent }

// inUse returns the number of words of bits that may be nonzero.
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

// empty removes all ranks and resizes the set for ranks below n. All memory of bits not marked in used is zero,
// including memory beyond its length.
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

// useAll marks all words of bits as possibly nonzero.
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

// intersect removes the ranks that are not in other.
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

// each yields the nonzero words in ascending order.
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

// rankSets allocates and combines the sets of a query.
type rankSets struct {
	n     int // upper bound of ranks
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

// release makes the memory of a set reusable.
func (r *rankSets) release(s rankSet) {
	if s.isOwn() {
		r.spare = append(r.spare, s)
	}
}

// all returns the intersection of sets, which must not be used afterwards. Sets with the fewest words in use are
// intersected first, sets of the index last.
func (r *rankSets) all(sets []rankSet) (all rankSet) {
	slices.SortFunc(sets, func(a, b rankSet) int { return a.inUse() - b.inUse() })
	for _, s := range sets {
		all = r.both(all, s)
	}
	return all
}

// both returns the intersection of two sets, which must not be used afterwards. A zero a means all ranks.
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

// either returns the union of two sets, which must not be used afterwards. A zero a is empty.
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
