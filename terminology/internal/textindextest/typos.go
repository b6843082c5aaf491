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

// asRead returns words as they are read.
func (q plainQuery) asRead(words []string) []string {
	for i, word := range words {
		if read := q.read[word]; read != nil {
			words[i] = read[0]
		}
	}
	return words
}

// wordTier is the tier of a word, or of the best of those it is read as.
func (q plainQuery) wordTier(spots []plainWord, word string) Tier {
	read := q.read[word]
	if read == nil {
		return plainWordTier(spots, word, true)
	}
	best := None
	for _, s := range spots {
		if slices.Contains(read, s.word) || spelled(s.word) == read[0] {
			best = min(best, map[bool]Tier{true: ByWholeHead, false: ByWhole}[s.head])
		}
	}
	return best
}

// correct reads the words that no document has as the most similar ones.
func (q *plainQuery) correct(d Documents) {
	counts := map[string]int{}
	for i := range d {
		seen := map[string]bool{}
		for _, s := range plainDocument(d[i]) {
			if !seen[s.word] {
				seen[s.word] = true
				counts[s.word]++
			}
		}
	}
	for _, typed := range Words(q.filter) {
		if read := plainGuesses(counts, typed); read != nil {
			if q.read == nil {
				q.read = map[string][]string{}
			}
			q.read[typed] = read
		}
	}
}

// plainGuesses returns up to five of the words that are most similar to one.
func plainGuesses(counts map[string]int, typed string) (read []string) {
	best := math.MaxInt
	for word := range counts {
		if plainFit(word, typed, true) > 0 {
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
