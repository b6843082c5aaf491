package textindex

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/bits"
	"slices"
	"sort"

	"github.com/caddy-fhir/caddy-fhir/terminology/internal/bitset"
)

// Index finds the documents of a corpus that match a filter without examining each of them. It consists of flat arrays without
// pointers, so that it can be stored off the heap.
//
// Documents are identified by rank, their position in the order within a tier. A set of ranks is therefore already sorted.
type Index struct {
	corpus          Corpus
	order           []uint32 // documents by rank
	selectableCount int      // number of selectable documents, which have the lowest ranks

	language  *language
	compounds *Compounds // nil if the language writes no compounds as one word
	words     wordList   // all words, including special words for runes
	postings  postings
	common    commonPrefixes

	pieces     substringFilter // four-byte substrings of the words
	byStem     hashIndex       // words by stem
	bySpelling spellingAliases // words by canonical spelling, if it differs

	exactTexts exactTexts
}

// exactTexts finds documents by their entire display or code.
type exactTexts struct {
	displays hashIndex // by the words of the display
	codes    hashIndex // by the words of the code without spaces
}

// addWords adds the documents that contain any word in the range [from, to).
func (x *Index) addWords(dst *rankSet, from, to int) {
	if common, ok := x.common.set(from, to, len(x.order)); ok {
		dst.union(&common)
		return
	}
	x.postings.unite(dst, from, to)
	x.postings.uniteTails(dst, from, to)
}

// addHeads adds the documents that have any word in the range [from, to) in a head.
func (x *Index) addHeads(dst *rankSet, from, to int) {
	if heads, ok := x.common.headSet(from, to, len(x.order)); ok {
		dst.union(&heads)
		return
	}
	x.postings.unite(dst, from, to)
}

// RanksOf converts a set of documents to a set of ranks for [Part.Ranks].
func (x *Index) RanksOf(docs bitset.Set) bitset.Set {
	ranks := bitset.New(len(x.order))
	for rank, doc := range x.order {
		if docs.Has(doc) {
			ranks.Add(uint32(rank))
		}
	}
	return ranks
}

// WithWords returns the documents in which, for each of the given words, a word begins with it. The words must be folded (see
// [Fold]). Unlike a search, it has no language rules and no order.
func (x *Index) WithWords(words []string) bitset.Set {
	sets := rankSets{n: len(x.order)}
	var all rankSet
	for _, word := range words {
		found := sets.newSet()
		from, to := x.words.prefixRange([]byte(word))
		x.addWords(&found, from, to)
		all = sets.intersect(all, found)
	}
	docs := bitset.New(len(x.order))
	all.each(func(i int, word uint64) bool {
		for ; word != 0; word &= word - 1 {
			docs.Add(x.order[i*64+bits.TrailingZeros64(word)])
		}
		return true
	})
	return docs
}

// WordCount returns the number of words, excluding special words for runes.
func (x *Index) WordCount() int { return x.words.len() - x.words.lowerBound([]byte{minWordByte}) }

// Bytes returns the memory use of the index in bytes.
func (x *Index) Bytes() int {
	words := x.words.bytes() + x.byStem.bytes() + x.bySpelling.bytes() + 8*len(x.pieces)
	if x.compounds != nil {
		words += x.compounds.bytes()
	}
	return words + 4*len(x.order) + 4*len(x.postings.from) + len(x.postings.list) + x.common.bytes() + x.exactTexts.displays.bytes() + x.exactTexts.codes.bytes()
}

// span is the range [from, to) in a list of words.
type span struct{ from, to int }

// wordList is a sorted list of words. Word i is text[from[i]:from[i+1]]. In a large list, each of the first steps of a binary
// search would miss the CPU cache. Therefore, samples contains the key of every sampleStride-th word, which is small enough to
// stay in the cache.
type wordList struct {
	text    []byte
	from    []uint32
	samples []uint64
}

// sampleStride is the distance between sampled items in a list.
const sampleStride = 64

// add appends a word. It must sort after all words in the list.
func (w *wordList) add(word []byte) {
	if len(w.from) == 0 {
		w.from = append(w.from, 0)
	}
	if w.len()%sampleStride == 0 {
		w.samples = append(w.samples, prefixKey(word))
	}
	w.text = append(w.text, word...)
	w.from = append(w.from, uint32(len(w.text)))
}

func (w *wordList) len() int { return max(len(w.from), 1) - 1 }

func (w *wordList) at(i int) []byte { return w.text[w.from[i]:w.from[i+1]] }

func (w *wordList) bytes() int { return len(w.text) + 4*len(w.from) + 8*len(w.samples) }

// find returns the index of a word.
func (w *wordList) find(word []byte) (i int, ok bool) {
	i = w.lowerBound(word)
	return i, i < w.len() && bytes.Equal(w.at(i), word)
}

// lowerBound returns the index of the first word that is greater than or equal to word.
func (w *wordList) lowerBound(word []byte) int {
	return sampledSearch(w.samples, w.len(), prefixKey(word), func(i int) bool { return bytes.Compare(w.at(i), word) >= 0 })
}

// prefixRange returns the range of words that begin with prefix.
func (w *wordList) prefixRange(prefix []byte) (from, to int) {
	from = w.lowerBound(prefix)
	if few := min(from+sampleStride, w.len()); few == w.len() || !bytes.HasPrefix(w.at(few), prefix) {
		return from, from + sort.Search(few-from, func(i int) bool { return !bytes.HasPrefix(w.at(from+i), prefix) })
	}
	to = sampledSearch(w.samples, w.len(), lastKey(prefix), func(i int) bool {
		return bytes.Compare(w.at(i), prefix) > 0 && !bytes.HasPrefix(w.at(i), prefix)
	})
	return from, to
}

// prefixEnd returns the index of the first word, at or after from, that does not begin with prefix.
func (w *wordList) prefixEnd(from int, prefix []byte) int {
	return from + exponentialSearch(w.len()-from, func(i int) bool { return !bytes.HasPrefix(w.at(from+i), prefix) })
}

// exponentialSearch is like [sort.Search], but optimized for small results: the step size doubles.
func exponentialSearch(n int, is func(i int) bool) int {
	step := 1
	for step <= n && !is(step-1) {
		step *= 2
	}
	low := step / 2
	return low + sort.Search(min(step, n)-low, func(i int) bool { return is(low + i) })
}

// keyLength is the length of a word's key in bytes.
const keyLength = 8

// prefixKey returns the first keyLength bytes of a word as a number that sorts in the same order.
func prefixKey(word []byte) uint64 {
	var b [keyLength]byte
	copy(b[:], word)
	return binary.BigEndian.Uint64(b[:])
}

// lastKey returns the highest key of words that begin with prefix, based on at most the first keyLength bytes.
func lastKey(prefix []byte) uint64 {
	return prefixKey(prefix) | math.MaxUint64>>(8*min(len(prefix), keyLength))
}

// sampledSearch is like [sort.Search], but for a list of n items that is sorted by key. samples contains the key of every
// sampleStride-th item. is must return true for items with a higher key and false for items with a lower key.
func sampledSearch(samples []uint64, n int, key uint64, is func(i int) bool) int {
	block := sort.Search(len(samples), func(i int) bool { return samples[i] > key || samples[i] == key && is(i*sampleStride) })
	low, high := max(0, (block-1)*sampleStride+1), min(block*sampleStride, n)
	return low + sort.Search(high-low, func(i int) bool { return is(low + i) })
}

// spellingAliases maps alternative spellings, which are sorted, to the words as written.
type spellingAliases struct {
	forms wordList
	ids   []uint32 // word numbers, by alternative spelling
}

// newSpellingAliases returns the alternative spellings of words. spellingOf returns nil for a word that has none.
func newSpellingAliases(words *wordList, spellingOf func(word []byte) []byte) (a spellingAliases) {
	type alias struct {
		form []byte
		id   uint32
	}
	var all []alias
	for id := range words.len() {
		if form := spellingOf(words.at(id)); form != nil {
			all = append(all, alias{form, uint32(id)})
		}
	}
	slices.SortStableFunc(all, func(a, b alias) int { return bytes.Compare(a.form, b.form) })
	for _, alias := range all {
		a.forms.add(alias.form)
		a.ids = append(a.ids, alias.id)
	}
	return a
}

func (a *spellingAliases) bytes() int { return a.forms.bytes() + 4*len(a.ids) }

// substringFilter is a Bloom filter of the four-byte substrings of words. If no word contains a text, it usually avoids a scan
// of all words.
type substringFilter []uint64

const (
	substringLength = 4

	// maxFilterBits is the maximum size of the filter in bits; more bits would rarely avoid a scan.
	maxFilterBits = 1 << 19
)

func newSubstringFilter(words *wordList) substringFilter {
	size := min(maxFilterBits, 64<<bits.Len(uint(len(words.text)/32)))
	p := make(substringFilter, size/64)
	for i := range words.len() {
		word := words.at(i)
		for at := range len(word) - substringLength + 1 {
			bit := p.bitOf(word[at:])
			p[bit/64] |= 1 << (bit % 64)
		}
	}
	return p
}

// bitOf returns the index of the bit for the first four bytes of a text.
func (p substringFilter) bitOf(text []byte) uint32 {
	piece := uint32(text[0]) | uint32(text[1])<<8 | uint32(text[2])<<16 | uint32(text[3])<<24
	return piece * 0x9e3779b1 >> 8 & uint32(64*len(p)-1) // Fibonacci hashing (Knuth)
}

// mayContain reports whether any word may contain part. If it returns false, no word contains part.
func (p substringFilter) mayContain(part []byte) bool {
	for at := range len(part) - substringLength + 1 {
		if bit := p.bitOf(part[at:]); p[bit/64]&(1<<(bit%64)) == 0 {
			return false
		}
	}
	return true
}
