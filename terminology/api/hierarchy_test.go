package api

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// randomHierarchy makes n concepts with some parents each. Cycles and loops may come about.
func randomHierarchy(r *rand.Rand, n int) (parents [][]int, codeSystem string) {
	parents = make([][]int, n)
	var concepts []string
	for i := range n {
		properties := []string{`{"code":"other","valueString":"x"}`}
		for range r.IntN(3) {
			p := r.IntN(n)
			parents[i] = append(parents[i], p)
			properties = append(properties, fmt.Sprintf(`{"code":"parent","valueCode":"c%d"}`, p))
		}
		concepts = append(concepts, fmt.Sprintf(`{"code":"c%d","property":[%s]}`, i, strings.Join(properties, ",")))
	}
	return parents, `{"resourceType":"CodeSystem","url":"http://x/cs","status":"active","content":"complete","concept":[` + strings.Join(concepts, ",") + `]}`
}

// hierarchyModel evaluates the hierarchical filters with the given concept by their definition.
func hierarchyModel(parents [][]int, of int) map[string][]string {
	var isA func(i, of int, seen []int) bool
	isA = func(i, of int, seen []int) bool {
		return i == of || !slices.Contains(seen, i) &&
			slices.ContainsFunc(parents[i], func(p int) bool { return isA(p, of, append(seen, i)) })
	}
	model := map[string][]string{"is-a": {}, "descendent-of": {}, "descendent-leaf": {}, "is-not-a": {}, "generalizes": {}, "child-of": {}}
	for i := range parents {
		isLeaf := !slices.ContainsFunc(parents, func(above []int) bool { return slices.Contains(above, i) })
		holds := map[string]bool{
			"is-a": isA(i, of, nil), "is-not-a": !isA(i, of, nil), "generalizes": isA(of, i, nil),
			"descendent-of": i != of && isA(i, of, nil), "child-of": slices.Contains(parents[i], of),
			"descendent-leaf": i != of && isA(i, of, nil) && isLeaf,
		}
		for op, yes := range holds {
			if yes {
				model[op] = append(model[op], fmt.Sprintf("c%d", i))
			}
		}
	}
	return model
}

func TestHierarchyAgainstNaive(t *testing.T) {
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 2))
		parents, codeSystem := randomHierarchy(r, 30)
		of := r.IntN(30)
		want := hierarchyModel(parents, of)
		definitions := []string{codeSystem}
		for op := range want {
			definitions = append(definitions, valueSetOf("http://x/"+op, fmt.Sprintf(`{"include":[{"system":"http://x/cs","filter":[{"property":"concept","op":%q,"value":"c%d"}]}]}`, op, of)))
		}
		l := libraryOf(t, definitions...)
		for op := range want {
			if got := expand(t, l, "url", "http://x/"+op).codes(); !slices.Equal(got, want[op]) {
				t.Errorf("seed %d, %s c%d: got %v, want %v", seed, op, of, got, want[op])
			}
		}
	}
}
