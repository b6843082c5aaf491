package terminology

import (
	"slices"
	"testing"
)

func TestRelation(t *testing.T) {
	r := newRelation(4, []pair{{2, 1}, {0, 3}, {2, 0}, {2, 1}, {0, 3}, {2, 3}})
	for concept, want := range [][]uint32{{3}, {}, {1, 0, 3}, {}} {
		if got := r.of(uint32(concept)); !slices.Equal(got, want) {
			t.Errorf("of(%d) = %v, want %v", concept, got, want)
		}
	}
	if empty := newRelation(4, nil); len(empty.of(3)) != 0 || empty.from != nil {
		t.Error("an empty relation holds something")
	}
}

func TestBitset(t *testing.T) {
	b := newBitset(130)
	for _, concept := range []uint32{0, 63, 64, 129, 5} {
		b.add(concept)
	}
	b.remove(5)
	var got []uint32
	b.each(func(concept uint32) { got = append(got, concept) })
	if !slices.Equal(got, []uint32{0, 63, 64, 129}) || b.count() != 4 || b.has(5) || !b.has(64) {
		t.Errorf("got %v, %d", got, b.count())
	}
}
