package textindex

import (
	"slices"

	"github.com/caddy-fhir/caddy-fhir/terminology/internal/bitset"
)

// runeSets holds the documents that have each letter or sign. A small set is a list, a large one a bitset, so that
// together they are never larger than the text, whatever the script.
type runeSets struct {
	runes   []rune   // ascending
	isDense []bool   // whether the set is a bitset
	start   []uint32 // of the set in lists or bits
	length  []uint32 // number of documents in the set
	lists   []uint32
	bits    []uint64
}

// find returns the set of a letter over n documents, as a bitset or as a list.
func (s *runeSets) find(r rune, n int) (dense rankSet, list []uint32) {
	i, ok := slices.BinarySearch(s.runes, r)
	if !ok {
		return rankSet{}, nil
	}
	start := s.start[i]
	if s.isDense[i] {
		return rankSet{bits: s.bits[start : int(start)+(n+63)/64], size: int(s.length[i])}, nil
	}
	return rankSet{}, s.lists[start : start+s.length[i]]
}

// runeSetsBuilder gathers runeSets over n documents, which must come in ascending order.
type runeSetsBuilder struct {
	n     int
	ascii [128]*growingSet
	other map[rune]*growingSet
}

// growingSet is a list that becomes a bitset once that is no larger.
type growingSet struct {
	list []uint32
	bits bitset.Set
	last uint32
}

func (b *runeSetsBuilder) add(r rune, rank uint32) {
	s := b.set(r)
	if s.last == rank+1 {
		return
	}
	s.last = rank + 1
	if s.bits != nil {
		s.bits.Add(rank)
		return
	}
	if s.list = append(s.list, rank); len(s.list) > b.n/32 {
		s.bits = bitset.New(b.n)
		for _, rank := range s.list {
			s.bits.Add(rank)
		}
		s.list = nil
	}
}

// set returns the set of a letter, made on first use.
func (b *runeSetsBuilder) set(r rune) *growingSet {
	if r < rune(len(b.ascii)) {
		if b.ascii[r] == nil {
			b.ascii[r] = new(growingSet)
		}
		return b.ascii[r]
	}
	s := b.other[r]
	if s == nil {
		if b.other == nil {
			b.other = make(map[rune]*growingSet)
		}
		s = new(growingSet)
		b.other[r] = s
	}
	return s
}

// build flattens the sets.
func (b *runeSetsBuilder) build() runeSets {
	var s runeSets
	for r, set := range b.ascii {
		if set != nil {
			s.runes = append(s.runes, rune(r))
		}
	}
	for r := range b.other {
		s.runes = append(s.runes, r)
	}
	slices.Sort(s.runes)
	for _, r := range s.runes {
		set := b.set(r)
		start, length := len(s.lists), len(set.list)
		if set.bits != nil {
			start, length = len(s.bits), set.bits.Count()
		}
		s.isDense, s.start, s.length = append(s.isDense, set.bits != nil), append(s.start, uint32(start)), append(s.length, uint32(length))
		s.bits, s.lists = append(s.bits, set.bits...), append(s.lists, set.list...)
	}
	return s
}
