package textindex

import (
	"cmp"
	"hash/maphash"
	"slices"
)

// exact finds documents by a text as a whole, of which it has the hash: that two texts have the same one by chance is
// less likely than an error of the memory.
type exact struct {
	hashes, every []uint64 // sorted; every strideth
	ranks         []uint32 // of their documents
}

var exactSeed = maphash.MakeSeed()

func exactHash(text []byte) uint64 { return maphash.Bytes(exactSeed, text) }

// newExact returns what finds documents by the hashes of their texts, which come in the order of their ranks.
func newExact(hashes []uint64) (e exact) {
	e.ranks = make([]uint32, len(hashes))
	for rank := range e.ranks {
		e.ranks[rank] = uint32(rank)
	}
	slices.SortFunc(e.ranks, func(a, b uint32) int { return cmp.Or(cmp.Compare(hashes[a], hashes[b]), cmp.Compare(a, b)) })
	e.hashes = make([]uint64, len(hashes))
	for i, rank := range e.ranks {
		if e.hashes[i] = hashes[rank]; i%stride == 0 {
			e.every = append(e.every, hashes[rank])
		}
	}
	return e
}

// find returns the ranks of the documents with a text.
func (e *exact) find(text []byte) []uint32 {
	hash := exactHash(text)
	from := sampledSearch(e.every, len(e.hashes), hash, func(i int) bool { return e.hashes[i] >= hash })
	return e.ranks[from:][:soonest(len(e.ranks)-from, func(i int) bool { return e.hashes[from+i] != hash })]
}

func (e *exact) bytes() int { return 8*(len(e.hashes)+len(e.every)) + 4*len(e.ranks) }
