package main

import (
	"slices"
	"testing"
)

func TestSample(t *testing.T) {
	t.Parallel()
	all := []mutant{{file: "a.go", removes: "one"}, {file: "b.go", removes: "two"}, {file: "a.go", removes: "three"}, {file: "c.go", removes: "four"}}
	for _, tt := range []struct {
		name   string
		sample sample
		want   int
	}{
		{"all", sample{}, 4},
		{"those that match", sample{match: "a.go"}, 2},
		{"some", sample{size: 3, seed: "x"}, 3},
		{"more than there are", sample{size: 9}, 4},
	} {
		t.Run(tt.name, func(t *testing.T) {
			chosen := tt.sample.choose(all)
			if len(chosen) != tt.want {
				t.Errorf("%d chosen, want %d", len(chosen), tt.want)
			}
			for _, c := range chosen {
				if all[c.number-1].String() != c.String() {
					t.Errorf("%s has number %d", c.mutant, c.number)
				}
			}
		})
	}
	firsts := map[string]bool{}
	for _, seed := range []string{"1", "2", "3", "4", "5", "6", "7", "8", "9"} {
		chosen := sample{size: 2, seed: seed, changed: []string{"c.go"}}.choose(all)
		if chosen[0].file != "c.go" {
			t.Errorf("seed %s: a changed file's mutant is not the first", seed)
		}
		firsts[chosen[1].String()] = true
		if again := (sample{size: 2, seed: seed, changed: []string{"c.go"}}).choose(all); !slices.EqualFunc(chosen, again, func(a, b trial) bool { return a.number == b.number }) {
			t.Errorf("seed %s: another choice the second time", seed)
		}
	}
	if len(firsts) < 2 {
		t.Error("the seed changes nothing")
	}
}
