package textindex

import (
	"bytes"
	"math"
	"math/bits"
	"slices"
	"sort"

	"github.com/caddy-fhir/caddy-fhir/terminology/internal/bitset"
)

// searchIndex returns the hits in positions [from, to) and the total number of hits.
func searchIndex(x *Index, within bitset.Set, f *Filter, how leniency, from, to int) ([]Hit, int) {
	q := queries.Get().(*query)
	q.index, q.ranks, q.leniency = x, within, how
	q.matcher.filter, q.matcher.prepared, q.matcher.compounds = f, f.prepareFor(x.language), x.compounds
	q.matcher.reader.corpus, q.matcher.reader.tokenizer.language = x.corpus, x.language
	q.sets.n = len(x.order)
	q.words.prepare(x, q.matcher.prepared, how, &q.sets)
	q.page.reset(x.order, from, to)
	total := q.search()
	hits := q.page.finish() // must not refer to memory of the index, which may be unmapped after this point
	q.words.reset()
	q.index, q.ranks = nil, nil
	q.matcher.filter, q.matcher.prepared, q.matcher.compounds = nil, nil, nil
	q.matcher.reader.releaseCorpus()
	queries.Put(q)
	return hits, total
}

// search finds the hits, sorts those on the page, and returns the number of all hits.
func (q *query) search() (total int) {
	if w := q.matcher.prepared.onlyWord(); w != nil && q.leniency == strictMatch && q.ranks == nil {
		return q.rankWord(w)
	}
	match, all := q.find()
	if q.ranks != nil {
		match = q.sets.intersect(match, rankSet{bits: q.ranks})
	}
	switch {
	case !all:
		total = q.rankEach(&match)
	case q.leniency != strictMatch:
		total = match.count()
		q.page.emitLastSet(&match, tierLenient)
	default:
		total = match.count()
		q.page.total = total
		q.rank(&match)
	}
	q.sets.release(match)
	return total
}

// find returns the matches. If all is false, it returns candidates that must be examined.
func (q *query) find() (match rankSet, all bool) {
	f := q.matcher.filter
	switch {
	case f.symbols != nil:
		return q.findSymbols(string(f.symbols)), false
	case f.letter != nil:
		return q.findRune(kindLetterAnywhere, f.onlyLetter()), true
	case q.leniency != strictMatch:
		return q.words.findUpTo(tierPrefix), true
	}
	return q.words.find(maxRankedEach)
}

// findSymbols returns the documents that contain all of the symbols.
func (q *query) findSymbols(symbols string) (found rankSet) {
	for _, r := range symbols {
		if r != ' ' {
			found = q.sets.intersect(found, q.findRune(kindSignAnywhere, r))
		}
	}
	return found
}

// wordFinder finds the documents that contain the words of a filter. It stores the documents found for each word and extends
// these sets from tier to tier.
type wordFinder struct {
	index    *Index
	prepared *preparedFilter
	leniency leniency
	sets     *rankSets
	lookups  []lookup // one per word of the filter
}

// lookup contains what was found for a word of the filter.
type lookup struct {
	wanted *queryWord
	resolvedWord
	set      rankSet // documents that contain the word, up to upToTier
	upToTier tier    // 0 if no set has been computed
}

// prepare prepares the finder for an index and a filter.
func (wf *wordFinder) prepare(x *Index, a *preparedFilter, how leniency, sets *rankSets) {
	wf.index, wf.prepared, wf.leniency, wf.sets = x, a, how, sets
}

// reset resets the finder but retains its memory for the next query.
func (wf *wordFinder) reset() {
	for i := range wf.lookups {
		f := &wf.lookups[i]
		wf.sets.release(f.set)
		f.wanted, f.set, f.upToTier = nil, rankSet{}, 0
	}
	wf.index, wf.prepared, wf.sets, wf.lookups = nil, nil, nil, wf.lookups[:0]
}

// findUpTo returns the documents with words that match in tier t or better. Calls must pass tiers in ascending order.
func (wf *wordFinder) findUpTo(t tier) (found rankSet) {
	if !wf.canMatch(t) {
		return wf.sets.newSet()
	}
	for _, s := range wf.prepared.segments {
		found = wf.sets.intersect(found, wf.findSegment(s, t))
	}
	return found
}

// find returns the matching documents. It looks up the rarest words first. As soon as at most few candidates remain, it returns
// them with all set to false, because examining them one by one is faster.
func (wf *wordFinder) find(few int) (found rankSet, all bool) {
	if !wf.canMatch(tierPrefix) {
		return wf.sets.newSet(), true
	}
	var room [8]sizedSegment
	segments := room[:0]
	for i := range wf.prepared.segments {
		segments = append(segments, sizedSegment{i, wf.size(wf.prepared.segments[i])})
	}
	slices.SortFunc(segments, func(a, b sizedSegment) int { return int(a.size) - int(b.size) })
	for i, s := range segments {
		found = wf.sets.intersect(found, wf.findSegment(wf.prepared.segments[s.segment], tierPrefix))
		if i+1 < len(segments) && found.count() <= few {
			return found, false
		}
	}
	return found, true
}

// sizedSegment is the index of a segment and the estimated size of its postings in bytes.
type sizedSegment struct {
	segment int
	size    uint32
}

// size estimates the size, in bytes, of the postings for a segment.
func (wf *wordFinder) size(s segment) (size uint32) {
	for _, way := range s {
		least := ^uint32(0)
		for i := range way {
			if way[i].run != nil {
				least = min(least, wf.size(way[i].run))
			}
			for k := range way[i].words {
				least = min(least, wf.lookUp(&way[i].words[k]).size(wf.index))
			}
		}
		size += least
	}
	return size
}

// size returns the size, in bytes, of the postings for the words.
func (r *resolvedWord) size(x *Index) (size uint32) {
	for _, s := range r.wholeWords {
		if !r.isInPrefixes(s) {
			size += x.postings.size(s.from, s.to)
		}
	}
	for _, s := range r.prefixes {
		size += x.postings.size(s.from, s.to)
	}
	return size
}

// canMatch reports whether the index contains words for every segment. Up to tierWholeWords, these must be whole words.
func (wf *wordFinder) canMatch(t tier) bool {
	return !slices.ContainsFunc(wf.prepared.segments, func(s segment) bool { return !wf.canMatchSegment(s, t) })
}

// canMatchSegment reports whether the index contains the words of any alternative of a segment.
func (wf *wordFinder) canMatchSegment(s segment, t tier) bool {
	return slices.ContainsFunc(s, func(way []requirement) bool {
		for i := range way {
			if !wf.canMatchRequirement(&way[i], t) {
				return false
			}
		}
		return true
	})
}

func (wf *wordFinder) canMatchRequirement(n *requirement, t tier) bool {
	if n.run != nil {
		return wf.canMatchSegment(n.run, t)
	}
	return wf.canMatchWords(n.words, t) || n.joined != nil && wf.canMatchWords(n.joined, t)
}

func (wf *wordFinder) canMatchWords(words []queryWord, t tier) bool {
	for i := range words {
		if f := wf.lookUp(&words[i]); len(f.wholeWords) == 0 && (t <= tierWholeWords || len(f.prefixes) == 0) {
			return false
		}
	}
	return true
}

// matchesOnlyHeadPrefixes reports whether all matches are in tierPrefixHead, which is common for prefixes of codes. This is the
// case if no whole word matches and all matching words occur only in heads.
func (wf *wordFinder) matchesOnlyHeadPrefixes() bool {
	if wf.canMatch(tierWholeWords) {
		return false
	}
	for _, f := range wf.lookups {
		if wf.index.postings.hasTails(f.wholeWords) || wf.index.postings.hasTails(f.prefixes) {
			return false
		}
	}
	return true
}

// findSegment returns the documents that match any alternative of a segment.
func (wf *wordFinder) findSegment(s segment, t tier) (found rankSet) {
	for _, way := range s {
		var storage [4]rankSet
		all := storage[:0]
		for i := range way {
			all = append(all, wf.findRequirement(&way[i], t))
		}
		found = wf.sets.union(found, wf.sets.intersectAll(all))
	}
	return found
}

func (wf *wordFinder) findRequirement(n *requirement, t tier) rankSet {
	if n.run != nil {
		return wf.findSegment(n.run, t)
	}
	var storage [4]rankSet
	words := storage[:0]
	for i := range n.words {
		words = append(words, wf.findWord(&n.words[i], t))
	}
	found := wf.sets.intersectAll(words)
	for i := range n.joined {
		found = wf.sets.union(found, wf.findWord(&n.joined[i], t))
	}
	return found
}

// lookUp returns the words in the index that match a word of the filter.
func (wf *wordFinder) lookUp(w *queryWord) *lookup {
	for i := range wf.lookups {
		if wf.lookups[i].wanted == w {
			return &wf.lookups[i]
		}
	}
	if len(wf.lookups) < cap(wf.lookups) {
		wf.lookups = wf.lookups[:len(wf.lookups)+1] // reuses the memory of the spans in the lookup
	} else {
		wf.lookups = append(wf.lookups, lookup{})
	}
	f := &wf.lookups[len(wf.lookups)-1]
	f.wanted = w
	wf.index.resolve(&f.resolvedWord, w)
	if wf.leniency == infixMatch && w.isLong() {
		f.prefixes = append(f.prefixes, wf.index.wordsContaining(w.word)...)
	}
	return f
}

// findWord returns the documents that contain a word that matches in tier t or better.
func (wf *wordFinder) findWord(w *queryWord, t tier) rankSet {
	f := wf.lookUp(w)
	if all, ok := wf.commonSet(f, t); ok {
		return all
	}
	if t == tierPrefix {
		return wf.findAll(&f.resolvedWord)
	}
	if f.upToTier == 0 {
		f.set, f.upToTier = wf.sets.newSet(), tierTerm
	}
	for f.upToTier < t {
		f.upToTier++
		wf.index.addTier(&f.set, &f.resolvedWord, f.upToTier)
	}
	shared := f.set
	shared.isShared = true
	return shared
}

// findAll returns the documents that contain any matching word.
func (wf *wordFinder) findAll(r *resolvedWord) rankSet {
	set := wf.sets.newSet()
	for _, s := range r.prefixes {
		wf.index.addWords(&set, s.from, s.to)
	}
	for _, s := range r.wholeWords {
		if !r.isInPrefixes(s) {
			wf.index.addWords(&set, s.from, s.to)
		}
	}
	return set
}

// addTier adds the documents that match in tier t, but not in a better tier.
func (x *Index) addTier(dst *rankSet, r *resolvedWord, t tier) {
	switch t {
	case tierWholeWordsHead:
		for _, s := range r.wholeWords {
			x.addHeads(dst, s.from, s.to)
		}
	case tierWholeWords:
		for _, s := range r.wholeWords {
			x.postings.uniteTails(dst, s.from, s.to)
		}
	case tierPrefixHead:
		for _, s := range r.prefixes {
			x.addHeads(dst, s.from, s.to)
		}
	}
}

// commonSet returns the stored set of documents with a word that matches in tier t or better, or false if none is stored.
func (wf *wordFinder) commonSet(f *lookup, t tier) (rankSet, bool) {
	switch {
	case t == tierPrefixHead && len(f.prefixes) == 1 && len(f.wholeWords) == 0:
		return wf.index.common.headSet(f.prefixes[0].from, f.prefixes[0].to, len(wf.index.order))
	case t == tierPrefix && len(f.prefixes) == 1 && f.allInPrefixes():
		return wf.index.common.set(f.prefixes[0].from, f.prefixes[0].to, len(wf.index.order))
	case t != tierWholeWordsHead && len(f.wholeWords) == 1 && (t == tierWholeWords || len(f.prefixes) == 0):
		return wf.index.common.set(f.wholeWords[0].from, f.wholeWords[0].to, len(wf.index.order))
	}
	return rankSet{}, false
}

// resolvedWord contains the ranges of words in an index that match a word of the filter.
type resolvedWord struct {
	wholeWords, prefixes []span
	hasExact             bool // wholeWords contains the word itself
}

// resolve finds all words in the index that match w, as [queryWord.fit] does for a single word.
func (x *Index) resolve(r *resolvedWord, w *queryWord) {
	r.wholeWords, r.prefixes = r.wholeWords[:0], r.prefixes[:0]
	from, to := x.words.prefixRange(w.word)
	r.add(x, w.word, from, to)
	r.hasExact = len(r.wholeWords) > 0
	if w.matchesPrefix {
		r.prefixes = appendSpan(r.prefixes, from, to)
	}
	for _, same := range w.numberNotations {
		from, to := x.words.prefixRange(same)
		r.add(x, same, from, to)
	}
	if !bytes.Equal(w.canonicalSpelling, w.word) {
		from, to := x.words.prefixRange(w.canonicalSpelling)
		r.add(x, w.canonicalSpelling, from, to)
		if w.matchesPrefix {
			r.prefixes = appendSpan(r.prefixes, from, to)
		}
	}
	r.addSpellings(x, w)
	r.addInflections(x, w)
}

func appendSpan(spans []span, from, to int) []span {
	if from == to {
		return spans
	}
	return append(spans, span{from, to})
}

// add adds word as a whole-word match if the index contains it. [from, to) is the range of words that begin with word.
func (r *resolvedWord) add(x *Index, word []byte, from, to int) {
	if from < to && len(x.words.at(from)) == len(word) {
		r.wholeWords = append(r.wholeWords, span{from, from + 1})
	}
}

// addSpellings adds the words that match in another spelling.
func (r *resolvedWord) addSpellings(x *Index, w *queryWord) {
	if len(w.word) < minStemmedLength {
		return
	}
	forms := &x.bySpelling.forms
	from, to := forms.prefixRange(w.canonicalSpelling)
	for i := from; i < to; i++ {
		id := int(x.bySpelling.ids[i])
		word := x.words.at(id)
		if len(forms.at(i)) == len(w.canonicalSpelling) {
			if !bytes.Equal(word, w.word) {
				r.wholeWords = append(r.wholeWords, span{id, id + 1})
			}
		} else if w.matchesPrefix && !bytes.HasPrefix(word, w.word) && !bytes.HasPrefix(word, w.canonicalSpelling) {
			r.prefixes = append(r.prefixes, span{id, id + 1})
		}
	}
}

// addInflections adds the words that have the same stem.
func (r *resolvedWord) addInflections(x *Index, w *queryWord) {
	if w.stem == nil {
		return
	}
	for _, rank := range x.byStem.find(w.stem) {
		id := int(rank)
		switch word := x.words.at(id); {
		case bytes.Equal(word, w.word):
		case isInflection(word, w.word):
			r.wholeWords = append(r.wholeWords, span{id, id + 1})
		case w.matchesPrefix && !bytes.HasPrefix(word, w.word):
			r.prefixes = append(r.prefixes, span{id, id + 1})
		}
	}
}

// isInPrefixes reports whether a range of words is part of the prefix matches.
func (r *resolvedWord) isInPrefixes(s span) bool {
	return slices.ContainsFunc(r.prefixes, func(b span) bool { return b.from <= s.from && s.to <= b.to })
}

// allInPrefixes reports whether all whole-word matches are part of the prefix matches.
func (r *resolvedWord) allInPrefixes() bool {
	return !slices.ContainsFunc(r.wholeWords, func(s span) bool { return !r.isInPrefixes(s) })
}

// wordsContaining returns the words that contain part. Because it may scan all words, it is used only if nothing else matches.
func (x *Index) wordsContaining(part []byte) (found []span) {
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
			at++ // the match extends into the next word
		}
	}
}

// rankSet is a set of ranks. Most filters match only a few documents, so clearing, counting and iterating depend on the ranks
// in the set, not on its capacity. Sets that belong to an index do not track the words in use.
type rankSet struct {
	bits      bitset.Set
	usedWords bitset.Set // indexes of words in bits that may be nonzero; nil if the set belongs to an index
	size      int        // number of ranks; set only if the set belongs to an index
	isShared  bool       // the set is shared and must not be changed
}

// isWritable reports whether the set may be changed.
func (s *rankSet) isWritable() bool { return s.usedWords != nil && !s.isShared }

// usedWordCount returns how many of the 64-bit words of s.bits may be nonzero.
func (s *rankSet) usedWordCount() int {
	if s.usedWords == nil {
		return len(s.bits)
	}
	return s.usedWords.Count()
}

func (s *rankSet) has(rank uint32) bool { return s.bits.Has(rank) }

func (s *rankSet) add(rank uint32) {
	s.bits.Add(rank)
	s.usedWords.Add(rank / 64)
}

// reset removes all ranks and resizes the set for ranks less than n. Words in bits that are not marked in usedWords are zero,
// including those beyond the length.
func (s *rankSet) reset(n int) {
	for i, word := range s.usedWords {
		if word != 0 {
			clear(s.bits[i*64 : min(i*64+64, len(s.bits))])
		}
	}
	clear(s.usedWords)
	words := (n + 63) / 64
	if cap(s.bits) < words {
		s.bits, s.usedWords = bitset.New(n), bitset.New(words)
	}
	s.bits, s.usedWords = s.bits[:words], s.usedWords[:(words+63)/64]
}

// markAllUsed marks all words in bits as possibly nonzero.
func (s *rankSet) markAllUsed() {
	for i := range s.usedWords {
		s.usedWords[i] = math.MaxUint64
	}
	if rest := len(s.bits) % 64; rest > 0 {
		s.usedWords[len(s.usedWords)-1] = 1<<rest - 1
	}
}

func (s *rankSet) union(other *rankSet) {
	if other.usedWords == nil {
		bits := s.bits[:len(other.bits)]
		for i, word := range other.bits {
			bits[i] |= word
		}
		s.markAllUsed()
		return
	}
	for i, word := range other.each {
		s.bits[i] |= word
		s.usedWords.Add(uint32(i))
	}
}

// addIntersection adds the ranks that are in both a and b.
func (s *rankSet) addIntersection(a *rankSet, b bitset.Set) {
	for i, word := range a.each {
		if word &= b[i]; word != 0 {
			s.bits[i] |= word
			s.usedWords.Add(uint32(i))
		}
	}
}

// intersect removes ranks that are not in other.
func (s *rankSet) intersect(other bitset.Set) {
	for i, used := range s.usedWords {
		for ; used != 0; used &= used - 1 {
			at := i*64 + bits.TrailingZeros64(used)
			if s.bits[at] &= other[at]; s.bits[at] == 0 {
				s.usedWords.Remove(uint32(at))
			}
		}
	}
}

func (s *rankSet) count() int {
	if s.usedWords == nil {
		return s.size
	}
	n := 0
	for i, used := range s.usedWords {
		for ; used != 0; used &= used - 1 {
			n += bits.OnesCount64(s.bits[i*64+bits.TrailingZeros64(used)])
		}
	}
	return n
}

// each calls yield with the nonzero words in ascending order.
func (s *rankSet) each(yield func(i int, word uint64) bool) {
	if s.usedWords == nil {
		for i, word := range s.bits {
			if word != 0 && !yield(i, word) {
				return
			}
		}
		return
	}
	for i, used := range s.usedWords {
		for ; used != 0; used &= used - 1 {
			at := i*64 + bits.TrailingZeros64(used)
			if word := s.bits[at]; word != 0 && !yield(at, word) {
				return
			}
		}
	}
}

// rankSets allocates and combines the sets that a query uses.
type rankSets struct {
	n    int // all ranks are less than n
	free []rankSet
}

func (r *rankSets) newSet() (s rankSet) {
	if last := len(r.free) - 1; last >= 0 {
		s, r.free = r.free[last], r.free[:last]
	}
	s.reset(r.n)
	return s
}

// release makes the memory of a set available to newSet.
func (r *rankSets) release(s rankSet) {
	if s.isWritable() {
		r.free = append(r.free, s)
	}
}

// intersectAll returns the intersection of sets, which must not be used afterwards. It begins with the sets that have the
// fewest words in use and ends with those that belong to the index.
func (r *rankSets) intersectAll(sets []rankSet) (all rankSet) {
	slices.SortFunc(sets, func(a, b rankSet) int { return a.usedWordCount() - b.usedWordCount() })
	for _, s := range sets {
		all = r.intersect(all, s)
	}
	return all
}

// intersect returns the intersection of a and b, which must not be used afterwards. If a is the zero value, the result is b.
func (r *rankSets) intersect(a, b rankSet) rankSet {
	switch {
	case a.bits == nil:
		return b
	case a.isWritable():
		a.intersect(b.bits)
		r.release(b)
		return a
	case b.isWritable():
		b.intersect(a.bits)
		return b
	}
	if a.usedWordCount() > b.usedWordCount() {
		a, b = b, a
	}
	both := r.newSet()
	both.addIntersection(&a, b.bits)
	return both
}

// union returns the union of a and b, which must not be used afterwards. If a is the zero value, the result is b.
func (r *rankSets) union(a, b rankSet) rankSet {
	switch {
	case a.bits == nil:
		return b
	case a.isWritable():
		a.union(&b)
		r.release(b)
		return a
	case b.isWritable():
		b.union(&a)
		return b
	}
	either := r.newSet()
	either.union(&a)
	either.union(&b)
	return either
}
