package textindex

import (
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
	divided  *Compounds // nil if there are none
	words    wordList   // with those of runes.go
	postings postings
	common   commonPrefixes

	pieces  pieces  // of the words
	stems   exact   // the words that have inflections
	spelled aliases // the words that have another spelling

	whole wholeTexts
}

// wholeTexts finds documents by a text as a whole.
type wholeTexts struct {
	displays exact // by the words of the display
	codes    exact // by the words of the code written together
}

// addWords adds the documents that have one of a range of words.
func (x *Index) addWords(dst *rankSet, from, to int) {
	if common, ok := x.common.set(from, to, len(x.order)); ok {
		dst.union(&common)
		return
	}
	x.postings.unite(dst, from, to)
	x.postings.uniteTails(dst, from, to)
}

// addHeads adds the documents that have one of a range of words in a head.
func (x *Index) addHeads(dst *rankSet, from, to int) {
	if heads, ok := x.common.headSet(from, to, len(x.order)); ok {
		dst.union(&heads)
		return
	}
	x.postings.unite(dst, from, to)
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
func (x *Index) Words() int { return x.words.len() - x.words.notBefore([]byte{firstOfWords}) }

// Bytes returns the memory use in bytes.
func (x *Index) Bytes() int {
	words := x.words.bytes() + x.stems.bytes() + x.spelled.bytes() + 8*len(x.pieces)
	if x.divided != nil {
		words += x.divided.bytes()
	}
	return words + 4*len(x.order) + 4*len(x.postings.from) + len(x.postings.list) + x.common.bytes() + x.whole.displays.bytes() + x.whole.codes.bytes()
}
