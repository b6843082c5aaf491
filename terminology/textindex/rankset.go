package textindex

import (
	"math"
	"math/bits"

	"github.com/caddy-fhir/caddy-fhir/terminology/internal/bitset"
)

// rankSet is a set of ranks. Most filters match few of many documents, so emptying, counting and iterating over a set
// of one's own cost as much as it holds, not as it could hold.
type rankSet struct {
	bits bitset.Set
	used bitset.Set // which words of bits may not be zero; nil for a set of the index
	size int        // number of ranks, in a set of the index
	lent bool       // whether it is somebody else's, who still needs it as it is
}

// isOwn reports whether a set may be changed.
func (s *rankSet) isOwn() bool { return s.used != nil && !s.lent }

// inUse returns how many words of bits may not be zero.
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

// empty removes all ranks and makes room for those below n. All memory of bits is zero unless used says otherwise,
// including what is beyond its length.
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

// useAll says that no word of bits need be zero.
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

// intersect keeps only what is also in another set.
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

// each yields the nonzero words, in ascending order.
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
