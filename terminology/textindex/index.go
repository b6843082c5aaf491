package textindex

import (
	"bytes"
	"slices"
	"sort"

	"github.com/caddy-fhir/caddy-fhir/terminology/bitset"
)

// Index finds the documents of a corpus that match a filter, without looking at each. It is flat arrays without
// pointers, so that it can lie off the heap.
//
// It knows a document by its rank, its position in the order within a tier. So a set of ranks is already in the order
// of the answer.
type Index struct {
	corpus Corpus
	order  []uint32 // the document of each rank

	words    wordList
	from     []uint32 // the ranks of word i are in postings[from[i]:from[i+1]]
	postings []byte   // ascending, as varints: the first, then the differences
	common   commonPrefixes

	displays textOrder // by the words of the display
	lowest   []uint32  // the lowest rank of each block of these
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
}

// unite is addWords by going through the postings.
func (x *Index) unite(dst *rankSet, from, to int) {
	if from == to {
		return
	}
	bits, used := dst.bits, dst.used
	postings := x.postings[:x.from[to]]
	at := x.from[from]
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
			used.Add(rank / 64)
		}
	}
}

// addContaining adds the documents with a word that contains part. It goes through all words, so it is used only if
// nothing else was found.
func (x *Index) addContaining(dst *rankSet, part []byte) {
	for at := 0; ; {
		found := bytes.Index(x.words.text[at:], part)
		if found < 0 {
			return
		}
		at += found
		word, _ := slices.BinarySearch(x.words.from, uint32(at)+1)
		if end := int(x.words.from[word]); at+len(part) <= end {
			x.addWords(dst, word-1, word)
			at = end
		} else {
			at++ // the match spans two words
		}
	}
}

// addMeant adds the documents with a word that begins with word, or with what may be meant by it.
func (x *Index) addMeant(dst *rankSet, word []byte, most int) {
	t := newTypist(word, most)
	from, end := x.words.prefixed([]byte(string(t.word[:1])))
	for from < end {
		candidate := x.words.at(from)
		decided, meant := t.look(candidate)
		to := from + 1
		if decided < len(candidate) || meant {
			to = x.words.after(from, candidate[:decided])
		}
		if meant {
			x.addWords(dst, from, to)
		}
		from = to
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

// displayed returns the range of displays that begin with line; up to exact, they equal it.
func (x *Index) displayed(f *folder, line []byte) (from, exact, to int) {
	key := prefixKey(line)
	from, to = x.displays.from(key), x.displays.beyond(lastKey(line))
	if len(line) < keyLength {
		// Words hold no zero byte, so a display that goes on after the line is more than the line's key.
		return from, x.displays.beyond(key), to
	}
	beginning := func(at, length int) []byte {
		return f.beginning(x.corpus.Display(x.order[x.displays.ranks[at]]), length)
	}
	from += sort.Search(to-from, func(i int) bool { return bytes.Compare(beginning(from+i, len(line)), line) >= 0 })
	to = from + soonest(to-from, func(i int) bool { return !bytes.Equal(beginning(from+i, len(line)), line) })
	exact = from + soonest(to-from, func(i int) bool { return len(beginning(from+i, len(line)+1)) > len(line) })
	return from, exact, to
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

func (x *Index) addDisplayed(dst *rankSet, from, to int) {
	for _, rank := range x.displays.ranks[from:to] {
		dst.add(rank)
	}
}

// block is how many ranks of displays share a lowest one.
const block = 32

// addLowest adds the n lowest ranks in a range of displays, and perhaps others. In a long range it looks only at the n
// blocks with the lowest ranks, which must hold them.
func (x *Index) addLowest(dst *rankSet, from, to, n int) {
	first, last := (from+block-1)/block, to/block
	if n > block || last-first <= n {
		x.addDisplayed(dst, from, to)
		return
	}
	var room [block]uint32
	lowest := room[:0] // ascending
	for _, rank := range x.lowest[first:last] {
		if len(lowest) == n {
			if rank > lowest[n-1] {
				continue
			}
			lowest = lowest[:n-1]
		}
		at, _ := slices.BinarySearch(lowest, rank)
		lowest = slices.Insert(lowest, at, rank)
	}
	x.addDisplayed(dst, from, first*block)
	for i, rank := range x.lowest[first:last] {
		if rank <= lowest[n-1] {
			x.addDisplayed(dst, (first+i)*block, (first+i+1)*block)
		}
	}
	x.addDisplayed(dst, last*block, to)
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
	words := 4 * (len(x.order) + len(x.words.from) + len(x.from) + len(x.displays.ranks) + len(x.lowest) + len(x.codes.ranks))
	keys := 8 * (len(x.displays.keys) + len(x.codes.keys) + (len(x.order)+x.words.len())/stride)
	sets := x.common.bytes() + x.letters.bytes() + x.initials.bytes() + x.symbols.bytes()
	return words + keys + sets + len(x.postings) + len(x.words.text)
}

func (s *runeSets) bytes() int {
	return 4*(len(s.runes)+len(s.start)+len(s.length)+len(s.lists)) + 8*len(s.bits)
}
