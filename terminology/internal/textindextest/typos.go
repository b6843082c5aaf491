package textindextest

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"unicode"
)

// Distance is the restricted Damerau-Levenshtein distance, as a whole table.
func Distance(a, b []rune) int {
	table := make([][]int, len(a)+1)
	for i := range table {
		table[i] = make([]int, len(b)+1)
		for j := range table[i] {
			switch {
			case i == 0 || j == 0:
				table[i][j] = i + j
			case a[i-1] == b[j-1]:
				table[i][j] = table[i-1][j-1]
			default:
				table[i][j] = 1 + min(table[i-1][j], table[i][j-1], table[i-1][j-1])
			}
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				table[i][j] = min(table[i][j], table[i-2][j-2]+1)
			}
		}
	}
	return table[len(a)][len(b)]
}

// guesses returns up to five of the words that are most similar to one.
func (f forms) guesses(counts map[string]int, typed string) (read []string) {
	best := math.MaxInt
	for word := range counts {
		if f.fit(word, typed, true) > 0 {
			return nil
		}
		score := plainScore([]rune(word), []rune(typed))
		if score < best {
			best, read = score, nil
		}
		if score == best && score < math.MaxInt {
			read = append(read, word)
		}
	}
	slices.SortFunc(read, func(a, b string) int { return cmp.Or(cmp.Compare(counts[b], counts[a]), strings.Compare(a, b)) })
	return read[:min(len(read), 5)]
}

// plainScore says how similar a word is to what was typed: the less, the more.
func plainScore(word, typed []rune) int {
	n := len(typed)
	if n < 5 || n > 32 || len(word) == 0 || word[0] != typed[0] || slices.ContainsFunc(append(slices.Clip(word), typed...), unicode.IsNumber) {
		return math.MaxInt
	}
	whole, begun := 2, 2
	if n < 6 {
		whole = 1
	}
	if n < 8 {
		begun = 1
	}
	best := math.MaxInt
	if distance := Distance(word[:min(len(word), n+3)], typed); distance <= whole {
		best = 2 * distance
	}
	for end := max(1, n-begun); end < min(len(word), n+begun+1); end++ {
		if distance := Distance(word[:end], typed); distance <= begun {
			best = min(best, 2*distance+1)
		}
	}
	return best
}
