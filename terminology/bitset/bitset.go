package bitset

import "math/bits"

// Set is a set of numbers below the one that [New] was told.
type Set []uint64

// New returns an empty set with room for the numbers below n.
func New(n int) Set { return make(Set, (n+63)/64) }

// Has reports whether i is in the set.
func (s Set) Has(i uint32) bool { return s[i/64]&(1<<(i%64)) != 0 }

// Add puts i into the set.
func (s Set) Add(i uint32) { s[i/64] |= 1 << (i % 64) }

// Remove takes i out of the set.
func (s Set) Remove(i uint32) { s[i/64] &^= 1 << (i % 64) }

// Count returns how many numbers are in the set.
func (s Set) Count() int {
	n := 0
	for _, word := range s {
		n += bits.OnesCount64(word)
	}
	return n
}

// Each calls visit with the numbers in the set, in ascending order.
func (s Set) Each(visit func(i uint32)) {
	for i, word := range s {
		for ; word != 0; word &= word - 1 {
			visit(uint32(i*64 + bits.TrailingZeros64(word)))
		}
	}
}
