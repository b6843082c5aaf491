package table

import (
	"unicode/utf8"

	"github.com/caddy-fhir/caddy-fhir/terminology/textindex"
)

// codeIndex finds a concept by its code: an open hash table of concepts plus one. The hash is of the code in lower
// case, so that one table serves code systems of either case sensitivity.
type codeIndex []uint32

// find returns the concept with a code; equal compares it with a concept's.
func (x codeIndex) find(code []byte, equal func(concept uint32) bool) (uint32, bool) {
	if len(x) == 0 {
		return 0, false
	}
	mask := uint32(len(x) - 1)
	for slot := hashFold(code) & mask; x[slot] != 0; slot = (slot + 1) & mask {
		if concept := x[slot] - 1; equal(concept) {
			return concept, true
		}
	}
	return 0, false
}

// insert adds a concept whose code is not yet in the table. There must be a free slot.
func (x codeIndex) insert(code []byte, concept uint32) {
	mask := uint32(len(x) - 1)
	slot := hashFold(code) & mask
	for x[slot] != 0 {
		slot = (slot + 1) & mask
	}
	x[slot] = concept + 1
}

// newCodeIndex returns a table for n concepts, at most two thirds full.
func newCodeIndex(n int) codeIndex {
	size := 4
	for size*2 < n*3 {
		size *= 2
	}
	return make(codeIndex, size)
}

// hashFold is FNV-1a over the code in lower case.
func hashFold(code []byte) uint32 {
	hash := uint32(2166136261)
	for i := 0; i < len(code); {
		r, width := rune(code[i]), 1
		if r >= utf8.RuneSelf {
			r, width = utf8.DecodeRune(code[i:])
		}
		hash = (hash ^ uint32(textindex.FoldCase(r))) * 16777619
		i += width
	}
	return hash
}
