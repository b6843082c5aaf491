package main

import (
	"cmp"
	"crypto/sha256"
	"slices"
	"strings"
)

// A sample describes a selection of mutants.
type sample struct {
	match   string   // selects mutants with this text in their list, file or description
	size    int      // maximum number of mutants; 0 means all
	seed    string   // seed of the random selection
	changed []string // files; their mutants are selected first
}

// choose returns the selected mutants, numbered from 1 by their position in all.
func (s sample) choose(all []mutant) []trial {
	var chosen []trial
	for i, m := range all {
		if strings.Contains(m.list+": "+m.String(), s.match) {
			chosen = append(chosen, trial{mutant: m, number: i + 1})
		}
	}
	if s.size == 0 || len(chosen) <= s.size {
		return chosen
	}
	slices.SortFunc(chosen, func(a, b trial) int {
		return cmp.Or(s.place(a.mutant)-s.place(b.mutant), cmp.Compare(s.lot(a.mutant), s.lot(b.mutant)))
	})
	return chosen[:s.size]
}

// place returns 0 for a mutant in a changed file, otherwise 1.
func (s sample) place(m mutant) int {
	if slices.Contains(s.changed, m.file) {
		return 0
	}
	return 1
}

// lot is a pseudorandom sort key that depends on the seed.
func (s sample) lot(m mutant) string {
	sum := sha256.Sum256([]byte(s.seed + "\n" + m.String()))
	return string(sum[:])
}
