package table

import (
	"slices"
	"testing"
)

func TestRelation(t *testing.T) {
	r := newRelation(4, []pair{{2, 1}, {0, 3}, {2, 0}, {2, 1}, {0, 3}, {2, 3}})
	for concept, want := range [][]uint32{{3}, {}, {1, 0, 3}, {}} {
		if got := r.related(uint32(concept)); !slices.Equal(got, want) {
			t.Errorf("of(%d) = %v, want %v", concept, got, want)
		}
	}
	if empty := newRelation(4, nil); len(empty.related(3)) != 0 || empty.from != nil {
		t.Error("an empty relation holds something")
	}
}
