package bitset

import (
	"slices"
	"testing"
)

func TestSet(t *testing.T) {
	b := New(130)
	for _, concept := range []uint32{0, 63, 64, 129, 5} {
		b.Add(concept)
	}
	b.Remove(5)
	var got []uint32
	b.Each(func(concept uint32) { got = append(got, concept) })
	if !slices.Equal(got, []uint32{0, 63, 64, 129}) || b.Count() != 4 || b.Has(5) || !b.Has(64) {
		t.Errorf("got %v, %d", got, b.Count())
	}
}
