// Package bitset implements sets of small numbers with one bit per number. A set is a slice of words, so callers can
// combine sets word by word.
package bitset

import "math/bits"

// Set is a set of numbers below the bound given to [New].
type Set []uint64

// New returns an empty set for numbers below n.
func New(n int) Set { return make(Set, (n+63)/64) }

// Has reports whether the set contains i.
func (s Set) Has(i uint32) bool { return s[i/64]&(1<<(i%64)) != 0 }

// Add adds i to the set.
func (s Set) Add(i uint32) { s[i/64] |= 1 << (i % 64) }

// Remove removes i from the set.
func (s Set) Remove(i uint32) { s[i/64] &^= 1 << (i % 64) }

// Count returns the number of members.
func (s Set) Count() int {
	n := 0
	for _, word := range s {
		n += bits.OnesCount64(word)
	}
	return n
}

// Each calls visit on every member in ascending order.
func (s Set) Each(visit func(i uint32)) {
	for i, word := range s {
		for ; word != 0; word &= word - 1 {
			visit(uint32(i*64 + bits.TrailingZeros64(word)))
		}
	}
}

// Union adds the members of o to the set.
func (s Set) Union(o Set) {
	for i, word := range o {
		s[i] |= word
	}
}

// Intersect removes the members that are not in o.
func (s Set) Intersect(o Set) {
	for i, word := range o {
		s[i] &= word
	}
}

// Subtract removes the members of o.
func (s Set) Subtract(o Set) {
	for i, word := range o {
		s[i] &^= word
	}
}
