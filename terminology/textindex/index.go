package textindex

import (
	"bytes"
	"encoding/binary"
	"slices"
	"sort"

	"github.com/caddy-fhir/caddy-fhir/terminology/internal/bitset"
)

// Index finds the documents of a corpus that match a filter, without looking at each. It is flat arrays without
// pointers, so that it can lie off the heap.
//
// It knows a document by its rank, its position in the order within a tier. So a set of ranks is already in the order
// of the answer.
type Index struct {
	corpus Corpus
	order  []uint32 // the document of each rank
	chosen int      // how many of these can be chosen; they come first

	language *language
	parts    partList // empty if the language has no compounds
	words    wordList
	from     []uint32 // the ranks of list i are in postings[from[i]:from[i+1]]; of n words, word i has list i in heads, and n+i elsewhere
	postings []byte   // ascending, as varints: the first, then the differences
	common   commonPrefixes

	pieces  pieces    // of the words
	stems   []byte    // by word: the length of its stem, or 0; see stemLength
	spelled spellings // the words that have another spelling

	displays textOrder // by the words of the display
	codes    textOrder // by the words of the code written together

	letters  runeSets // letters and digits anywhere in the display
	initials runeSets // those that begin a word of the display
	symbols  runeSets // all others, in the display or the code
}

// addWords adds the documents that have one of a range of words.
func (x *Index) addWords(dst *rankSet, from, to int) {
	if common, ok := x.common.set(from, to, len(x.order)); ok {
		dst.union(&common)
		return
	}
	x.unite(dst, from, to)
	x.addTails(dst, from, to)
}

// addHeads adds the documents that have one of a range of words in a head.
func (x *Index) addHeads(dst *rankSet, from, to int) {
	if heads, ok := x.common.headSet(from, to, len(x.order)); ok {
		dst.union(&heads)
		return
	}
	x.unite(dst, from, to)
}

// addTails adds those that have one elsewhere, and not in a head.
func (x *Index) addTails(dst *rankSet, from, to int) {
	n := x.words.len()
	x.unite(dst, n+from, n+to)
}

// hasTails reports whether documents have one of some words elsewhere than in a head.
func (x *Index) hasTails(words []span) bool {
	n := x.words.len()
	return slices.ContainsFunc(words, func(s span) bool { return x.from[n+s.from] < x.from[n+s.to] })
}

// uniteFirst adds the first n ranks of a list.
func (x *Index) uniteFirst(dst *rankSet, list, n int) {
	rank := uint32(0)
	postings := x.postings[x.from[list]:x.from[list+1]]
	for ; n > 0 && len(postings) > 0; n-- {
		more, width := binary.Uvarint(postings)
		postings = postings[width:]
		rank += uint32(more)
		dst.add(rank)
	}
}

// size returns how many bytes of postings a range of words has.
func (x *Index) size(from, to int) uint32 {
	n := x.words.len()
	return x.from[to] - x.from[from] + x.from[n+to] - x.from[n+from]
}

// unite adds the ranks of a range of lists.
func (x *Index) unite(dst *rankSet, from, to int) {
	if from == to {
		return
	}
	bits, used := dst.bits, dst.used
	postings := x.postings[:x.from[to]]
	at := x.from[from]
	if len(postings)-int(at) > len(bits) { // it takes longer to note what is used than to go through all
		dst.useAll()
		used = nil
	}
	for _, end := range x.from[from+1 : to+1] {
		rank := uint32(0)
		for at < end {
			more := uint32(postings[at])
			if at++; more >= 0x80 {
				more &= 0x7f
				for shift := 7; ; shift += 7 {
					c := postings[at]
					at++
					more |= uint32(c&0x7f) << shift
					if c < 0x80 {
						break
					}
				}
			}
			rank += more
			bits.Add(rank)
			if used != nil {
				used.Add(rank / 64)
			}
		}
	}
}

// coded returns the ranks of the documents whose code, written together, is code.
func (x *Index) coded(f *folder, code []byte) []uint32 {
	key := prefixKey(code)
	ranks := x.codes.ranks[x.codes.from(key):x.codes.beyond(key)]
	if len(code) < keyLength {
		return ranks
	}
	var joined []byte
	compare := func(rank uint32) int {
		joined = appendJoined(joined[:0], f.words(x.corpus.Code(x.order[rank])))
		return bytes.Compare(joined, code)
	}
	ranks = ranks[sort.Search(len(ranks), func(i int) bool { return compare(ranks[i]) >= 0 }):]
	return ranks[:sort.Search(len(ranks), func(i int) bool { return compare(ranks[i]) > 0 })]
}

// displayed returns the range of displays that equal a line.
func (x *Index) displayed(f *folder, line []byte) (from, to int) {
	key := prefixKey(line)
	from, to = x.displays.from(key), x.displays.beyond(key)
	if len(line) < keyLength {
		return from, to // words hold no zero byte, so a display that goes on after the line is more than the line's key
	}
	beginning := func(at, length int) []byte {
		return f.beginning(x.corpus.Display(x.order[x.displays.ranks[at]]), length)
	}
	from += sort.Search(to-from, func(i int) bool { return bytes.Compare(beginning(from+i, len(line)), line) >= 0 })
	to = from + soonest(to-from, func(i int) bool { return !bytes.Equal(beginning(from+i, len(line)+1), line) })
	return from, to
}

// soonest is [sort.Search] for answers that are mostly small: its steps double.
func soonest(n int, is func(i int) bool) int {
	step := 1
	for step <= n && !is(step-1) {
		step *= 2
	}
	low := step / 2
	return low + sort.Search(min(step, n)-low, func(i int) bool { return is(low + i) })
}

// RanksOf returns a set of documents as the set of their ranks, for [Part.Within].
func (x *Index) RanksOf(docs bitset.Set) bitset.Set {
	ranks := bitset.New(len(x.order))
	for rank, doc := range x.order {
		if docs.Has(doc) {
			ranks.Add(uint32(rank))
		}
	}
	return ranks
}

// Words returns the number of words.
func (x *Index) Words() int { return x.words.len() }

// Bytes returns the memory use in bytes.
func (x *Index) Bytes() int {
	words := 4 * (len(x.order) + len(x.words.from) + len(x.from) + len(x.displays.ranks) + len(x.codes.ranks) + len(x.spelled.ids))
	keys := 8 * (len(x.displays.keys) + len(x.codes.keys) + (len(x.order)+x.words.len())/stride)
	sets := x.common.bytes() + x.letters.bytes() + x.initials.bytes() + x.symbols.bytes()
	return words + keys + sets + len(x.postings) + len(x.words.text) + len(x.stems) + len(x.parts.list) + 4*len(x.parts.every) + 8*len(x.pieces)
}

func (s *runeSets) bytes() int {
	return 4*(len(s.runes)+len(s.start)+len(s.length)+len(s.lists)) + 8*len(s.bits)
}
