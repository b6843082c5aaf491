package textindex

import (
	"cmp"
	"hash/maphash"
	"slices"
)

// exact finds documents by a text as a whole, and words by their stem, of which it has the hash: that two texts have the same
// one by chance is less likely than an error of the memory. To find a hash waits for memory half as often as to find a text.
type exact struct {
	hashes, every []uint64 // sorted; every strideth
	ranks         []uint32 // of their documents, or their words
}

var exactSeed = maphash.MakeSeed()

func exactHash(text []byte) uint64 { return maphash.Bytes(exactSeed, text) }

// newExact returns what finds documents by the hashes of their texts, which come in the order of their ranks. One of 0 is
// not to be found.
func newExact(hashes []uint64) (e exact) {
	for rank, hash := range hashes {
		if hash != 0 {
			e.ranks = append(e.ranks, uint32(rank))
		}
	}
	slices.SortFunc(e.ranks, func(a, b uint32) int { return cmp.Or(cmp.Compare(hashes[a], hashes[b]), cmp.Compare(a, b)) })
	e.ranks = slices.Clip(e.ranks)
	e.hashes = make([]uint64, len(e.ranks))
	for i, rank := range e.ranks {
		if e.hashes[i] = hashes[rank]; i%stride == 0 {
			e.every = append(e.every, hashes[rank])
		}
	}
	return e
}

// newStems returns what finds words by their stem.
func newStems(words *wordList, l *language) exact {
	hashes := make([]uint64, words.len())
	for id := range hashes {
		if stem := l.stem(words.at(id)); stem != nil {
			hashes[id] = exactHash(stem)
		}
	}
	return newExact(hashes)
}

// find returns the ranks of what has a text.
func (e *exact) find(text []byte) []uint32 {
	hash := exactHash(text)
	from := sampledSearch(e.every, len(e.hashes), hash, func(i int) bool { return e.hashes[i] >= hash })
	return e.ranks[from:][:soonest(len(e.ranks)-from, func(i int) bool { return e.hashes[from+i] != hash })]
}

func (e *exact) bytes() int { return 8*(len(e.hashes)+len(e.every)) + 4*len(e.ranks) }
