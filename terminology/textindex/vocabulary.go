package textindex

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"hash/maphash"
	"slices"

	"github.com/caddy-fhir/caddy-fhir/terminology/internal/offheap"
)

// vocabulary numbers words in the order they are first seen.
type vocabulary struct {
	text []byte
	from []uint32 // word i is text[from[i]:from[i+1]]
	hash []uint32 // by word, so that the table can grow without reading the words again
	slot []uint32 // open hash table of numbers plus one
	seed maphash.Seed
}

func newVocabulary() vocabulary {
	return vocabulary{from: make([]uint32, 1), slot: make([]uint32, 1<<10), seed: maphash.MakeSeed()}
}

func (v *vocabulary) at(id uint32) []byte { return v.text[v.from[id]:v.from[id+1]] }

func (v *vocabulary) len() int { return len(v.hash) }

// look returns the number of a word, if it is there, or else the slot for it.
func (v *vocabulary) look(word []byte, hash uint32) (id, slot uint32, ok bool) {
	mask := uint32(len(v.slot) - 1)
	at := hash & mask
	for ; v.slot[at] != 0; at = (at + 1) & mask {
		if id := v.slot[at] - 1; v.hash[id] == hash && bytes.Equal(v.at(id), word) {
			return id, at, true
		}
	}
	return 0, at, false
}

// find returns the number of a word, if it is there.
func (v *vocabulary) find(word []byte) (id uint32, ok bool) {
	id, _, ok = v.look(word, uint32(maphash.Bytes(v.seed, word)))
	return id, ok
}

// id returns the number of a word, which it adds if need be.
func (v *vocabulary) id(word []byte) uint32 {
	hash := uint32(maphash.Bytes(v.seed, word))
	id, slot, ok := v.look(word, hash)
	if ok {
		return id
	}
	id = uint32(len(v.hash))
	v.slot[slot] = id + 1
	v.text = append(v.text, word...)
	v.from = append(v.from, uint32(len(v.text)))
	v.hash = append(v.hash, hash)
	if len(v.hash)*2 > len(v.slot) {
		v.grow()
	}
	return id
}

func (v *vocabulary) grow() {
	v.slot = make([]uint32, 2*len(v.slot))
	mask := uint32(len(v.slot) - 1)
	for id, hash := range v.hash {
		at := hash & mask
		for v.slot[at] != 0 {
			at = (at + 1) & mask
		}
		v.slot[at] = uint32(id) + 1
	}
}

// sortByText sorts the numbers below n by their texts, text[from[i]:from[i+1]], and then by themselves. It keeps the
// first bytes of each beside it, since most comparisons need no more.
func sortByText(n int, text []byte, from []uint32) []uint32 {
	type keyed struct {
		start uint64
		id    uint32
	}
	all := make([]keyed, n)
	for i := range all {
		all[i] = keyed{start: prefixKey(text[from[i]:from[i+1]]), id: uint32(i)}
	}
	slices.SortFunc(all, func(a, b keyed) int {
		if a.start != b.start {
			return cmp.Compare(a.start, b.start)
		}
		c := bytes.Compare(text[from[a.id]:from[a.id+1]], text[from[b.id]:from[b.id+1]])
		return cmp.Or(c, cmp.Compare(a.id, b.id))
	})
	ids := make([]uint32, n)
	for i, k := range all {
		ids[i] = k.id
	}
	return ids
}

// wordStream is the words of one document after the other, as varints: their numbers plus one, and 0 at the end of each
// document. It grows without copying, in memory that is freed when no longer needed.
type wordStream struct {
	memory offheap.Memory
	chunks [][]byte
}

func (s *wordStream) append(n uint32) {
	last := len(s.chunks) - 1
	if last < 0 || cap(s.chunks[last])-len(s.chunks[last]) < binary.MaxVarintLen32 {
		s.chunks, last = append(s.chunks, s.chunk()), last+1
	}
	s.chunks[last] = binary.AppendUvarint(s.chunks[last], uint64(n))
}

// chunk returns another chunk, larger than those before.
func (s *wordStream) chunk() []byte {
	size := 1 << 10
	if last := len(s.chunks) - 1; last >= 0 {
		size = min(1<<19, 4*cap(s.chunks[last]))
	}
	if size >= offheap.Smallest {
		if region := s.memory.Take(size); region != nil {
			return region[:0]
		}
	}
	return make([]byte, 0, size)
}

func (s *wordStream) release() {
	s.chunks = nil
	s.memory.Release()
}

// each calls visit with each word and the rank of its document.
func (s *wordStream) each(visit func(rank, word uint32)) {
	rank := uint32(0)
	for _, chunk := range s.chunks {
		for len(chunk) > 0 {
			n, width := binary.Uvarint(chunk)
			chunk = chunk[width:]
			if n == 0 {
				rank++
				continue
			}
			visit(rank, uint32(n-1))
		}
	}
}
