package textindex

import (
	"fmt"
	"math"
	"slices"
	"testing"
)

// testTerms is a list of terms and their parents.
type testTerms []testTerm

type testTerm struct {
	display            string
	parent             int // index of the parent plus one; 0 if there is none
	abstract, inactive bool
	weight             float64
}

func (m testTerms) Len() int                  { return len(m) }
func (m testTerms) Display(doc uint32) []byte { return []byte(m[doc].display) }
func (m testTerms) Abstract(doc uint32) bool  { return m[doc].abstract }
func (m testTerms) Inactive(doc uint32) bool  { return m[doc].inactive }
func (m testTerms) Weight(doc uint32) float64 { return m[doc].weight }

func (m testTerms) Parent(doc uint32) (uint32, bool) {
	return uint32(m[doc].parent - 1), m[doc].parent > 0
}

// inOrder returns the indexes of the terms in rank order.
func (m testTerms) inOrder() []int {
	ranks := Ranks(m)
	order := make([]int, len(m))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return int(ranks[i]) - int(ranks[j]) })
	return order
}

func TestRanks(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		terms testTerms
		want  []int
	}{
		{"the order given", testTerms{{display: "a"}, {display: "b"}, {display: "c"}}, []int{0, 1, 2}},
		{"shorter first", testTerms{{display: "a b c"}, {display: "d"}, {display: "e f"}}, []int{1, 2, 0}},
		{"brackets do not count", testTerms{{display: "a b"}, {display: "c (d e f)"}}, []int{1, 0}},
		{"frequent words rank low", testTerms{{display: "rare fever"}, {display: "fever unspecified"}, {display: "cough unspecified"}}, []int{1, 0, 2}},
		{"what can be chosen, and active", testTerms{{display: "a", abstract: true}, {display: "a", inactive: true}, {display: "a b c"}}, []int{2, 1, 0}},
		{"used often", testTerms{{display: "a"}, {display: "a b c", weight: 3}, {display: "a b c", weight: 3000}}, []int{2, 1, 0}},
		{"used before active", testTerms{{display: "a"}, {display: "b", inactive: true, weight: 1}}, []int{1, 0}},
		{"used, though it cannot be chosen", testTerms{{display: "a b", abstract: true, weight: 9}, {display: "c d"}}, []int{1, 0}},
		{"one more", testTerms{{display: "a", weight: 11}, {display: "b", weight: 12}}, []int{1, 0}},
		{"as good as equal", testTerms{{display: "a b", weight: 1001}, {display: "c", weight: 1000}}, []int{1, 0}},
		{"very small and very large", testTerms{{display: "a"}, {display: "b", weight: 1e-9}, {display: "c", weight: 0.5}, {display: "d", weight: 1e300}}, []int{3, 2, 1, 0}},
		{"not a weight", testTerms{{display: "a b", weight: math.NaN()}, {display: "c", weight: -1}}, []int{1, 0}},
		{"above", testTerms{{display: "a"}, {display: "b", parent: 1}, {display: "c", parent: 2}, {display: "d"}}, []int{0, 3, 1, 2}},
		{"a parent that comes later, and one of itself", testTerms{{display: "a", parent: 2}, {display: "b", parent: 2}}, []int{0, 1}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if got := test.terms.inOrder(); !slices.Equal(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

// TestVariants checks that the first of several routine variants is treated as plain and that the others rank last.
func TestVariants(t *testing.T) {
	t.Parallel()
	var m testTerms
	for i := range minRoutineParents {
		m = append(m, testTerm{display: fmt.Sprintf("Fracture n%d", i), abstract: true})
		parent := len(m)
		for _, tail := range []string{", initial encounter, with very many words", ", sequela"} {
			m = append(m, testTerm{display: m[parent-1].display + tail, parent: parent})
		}
	}
	m = append(m, testTerm{display: "Fever", abstract: true})
	parent := len(m)
	m = append(m, testTerm{display: "Fever, sequela", parent: parent}, testTerm{display: "Fever at night in the dark", parent: parent})
	order := m.inOrder()
	if first, last := order[:minRoutineParents+2], order[len(order)-minRoutineParents-1:]; slices.ContainsFunc(first, func(i int) bool {
		return i < parent-1 && i%3 != 1
	}) || slices.ContainsFunc(last, func(i int) bool { return !m[i].abstract }) {
		t.Errorf("first %v, last %v", first, last)
	}
}

func TestRankIsBounded(t *testing.T) {
	t.Parallel()
	m := make(testTerms, 300)
	for i := range m {
		m[i] = testTerm{display: fmt.Sprintf("w%d", i), parent: i, weight: math.Inf(1)}
	}
	for i, rank := range Ranks(m) {
		if rank >= rankInactive {
			t.Fatalf("term %d has rank %x", i, rank)
		}
	}
}

// TestWeighed checks that WithWeight returns the same ranks as Ranks does for the same weights.
func TestWeighed(t *testing.T) {
	t.Parallel()
	m := make(testTerms, 64)
	for i := range m {
		m[i] = testTerm{display: fmt.Sprintf("w%d", i%5), parent: i / 2, abstract: i%7 == 0, inactive: i%3 == 0, weight: float64(i % 11)}
	}
	ranks := Ranks(m)
	for i := range m {
		m[i].weight = float64(i % 4)
	}
	for i, want := range Ranks(m) {
		if got := WithWeight(ranks[i], m[i].weight); got != want {
			t.Errorf("term %d: got %x, want %x", i, got, want)
		}
	}
}
