package cache

import (
	"math/bits"
	"math/rand/v2"
)

// sketch estimates how often keys were used lately, in little room: a count-min sketch behind a doorkeeper (TinyLFU:
// Einziger, Friedman, Manes 2017). A key used once is only in the doorkeeper, a Bloom filter.
type sketch struct {
	seed       uint64 // so that nobody can make keys that look like others
	counters   [rows][]uint8
	doorkeeper []uint64
	shift      int // from a hash to an index of counters
	added      int
	sample     int // after how many the counters are halved
}

const (
	rows     = 4  // counters of a key, of which the smallest counts
	maxCount = 15 // of a counter
)

func newSketch(n int64) *sketch {
	width := bits.Len64(uint64(min(max(n, 1<<10), 1<<20)) - 1)
	s := &sketch{seed: rand.Uint64() | 1, shift: 64 - width, sample: 10 << width}
	for i := range s.counters {
		s.counters[i] = make([]uint8, 1<<width)
	}
	s.doorkeeper = make([]uint64, 1<<width/8) // 8 bits for each
	return s
}

var odd = [rows]uint64{0x9e3779b97f4a7c15, 0xc2b2ae3d27d4eb4f, 0x165667b19e3779f9, 0xd6e8feb86659fd93}

func (s *sketch) at(hash uint64, row int) uint64 { return hash * s.seed * odd[row] >> s.shift }

// door returns a key's two places in the doorkeeper.
func (s *sketch) door(hash uint64) (word1, bit1, word2, bit2 uint64) {
	high, low := bits.Mul64(hash^s.seed, odd[0])
	mask := uint64(len(s.doorkeeper) - 1)
	return high >> 6 & mask, 1 << (high & 63), low >> 38 & mask, 1 << (low >> 32 & 63)
}

func (s *sketch) add(hash uint64) {
	if s.added++; s.added >= s.sample {
		s.age()
	}
	w1, b1, w2, b2 := s.door(hash)
	if s.doorkeeper[w1]&b1 == 0 || s.doorkeeper[w2]&b2 == 0 {
		s.doorkeeper[w1] |= b1
		s.doorkeeper[w2] |= b2
		return
	}
	for row := range s.counters {
		if counter := &s.counters[row][s.at(hash, row)]; *counter < maxCount {
			*counter++
		}
	}
}

// estimate returns about how often a key was used, and apart from ageing never less.
func (s *sketch) estimate(hash uint64) int {
	count := maxCount
	for row := range s.counters {
		count = min(count, int(s.counters[row][s.at(hash, row)]))
	}
	w1, b1, w2, b2 := s.door(hash)
	if s.doorkeeper[w1]&b1 != 0 && s.doorkeeper[w2]&b2 != 0 {
		count++
	}
	return count
}

// age halves all counters, so that past use loses weight.
func (s *sketch) age() {
	for row := range s.counters {
		for i := range s.counters[row] {
			s.counters[row][i] /= 2
		}
	}
	clear(s.doorkeeper)
	s.added /= 2
}
