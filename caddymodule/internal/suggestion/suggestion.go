// Package suggestion finds the known word that was probably meant by a misspelled word. It does not depend on Caddy.
package suggestion

import (
	"slices"
	"strings"
)

// Nearest returns the candidate with the fewest typing errors if their number is small relative to the candidate's length, and
// otherwise a candidate that begins with the word. It returns "" if there is none.
func Nearest(word string, candidates []string) string {
	best, fewestErrors := "", len(word)/3+1
	for _, candidate := range slices.Sorted(slices.Values(candidates)) {
		if d := CountTypingErrors(strings.ToLower(word), strings.ToLower(candidate)); d < fewestErrors {
			best, fewestErrors = candidate, d
		}
	}
	if best == "" && len(word) > 3 {
		if i := slices.IndexFunc(candidates, func(k string) bool { return strings.HasPrefix(k, word) }); i >= 0 {
			best = candidates[i]
		}
	}
	return best
}

// CountTypingErrors returns the number of wrong, missing, extra and transposed letters (optimal string alignment distance).
func CountTypingErrors(a, b string) int {
	var before []int
	last := make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			substitution := 1
			if a[i-1] == b[j-1] {
				substitution = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+substitution)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}
