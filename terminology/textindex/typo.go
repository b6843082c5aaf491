package textindex

import (
	"slices"
	"unicode"
	"unicode/utf8"
)

// maxTypos returns how many typos to forgive in a word: none in a short one, which could then be anything, and none in
// one with a digit, since another digit means something else.
func maxTypos(word []byte) int {
	letters := 0
	for i := 0; i < len(word); {
		r, width := utf8.DecodeRune(word[i:])
		if unicode.IsNumber(r) {
			return 0
		}
		i += width
		letters++
	}
	switch {
	case letters < 4:
		return 0
	case letters < 8:
		return 1
	default:
		return 2
	}
}

// typist finds the words that begin with a word or with what may be meant by it: a letter too many, too few or wrong,
// or two swapped, is one typo (the restricted Damerau-Levenshtein distance). The first letter must be right. The rows
// of the distance table are kept, so that words with a common beginning, which follow each other in a sorted list,
// share the work.
type typist struct {
	word []rune
	most int
	seen []rune  // the letters of the rows
	rows [][]int // rows[k][j] is the distance of seen[:k] and word[:j]
}

// newTypist prepares for a word with at most most typos.
func newTypist(word []byte, most int) *typist {
	t := &typist{word: []rune(string(word)), most: most}
	first := make([]int, len(t.word)+1)
	for j := range first {
		first[j] = j
	}
	t.rows = append(t.rows, first)
	return t
}

// look compares the beginnings of a word. It returns after how many bytes it is decided whether the word is meant, and
// with it every other that begins with these.
func (t *typist) look(word []byte) (decided int, meant bool) {
	k := 0
	for at := 0; at < len(word); {
		r, width := utf8.DecodeRune(word[at:])
		at += width
		if k++; k > len(t.seen) || t.seen[k-1] != r {
			t.step(k, r)
		}
		switch {
		case k == 1 && r != t.word[0]:
			return at, false
		case t.rows[k][len(t.word)] <= t.most:
			return at, true
		case t.hopeless(k):
			return at, false
		}
	}
	return len(word), false
}

// step fills row k for the letter r, and drops later rows.
func (t *typist) step(k int, r rune) {
	t.seen = append(t.seen[:k-1], r)
	if len(t.rows) <= k {
		t.rows = append(t.rows, make([]int, len(t.word)+1))
	}
	above, row := t.rows[k-1], t.rows[k]
	row[0] = k
	for j, wanted := range t.word {
		cost := 1
		if r == wanted {
			cost = 0
		}
		row[j+1] = min(above[j+1]+1, row[j]+1, above[j]+cost)
		if k > 1 && j > 0 && r == t.word[j-1] && t.seen[k-2] == wanted {
			row[j+1] = min(row[j+1], t.rows[k-2][j-1]+1)
		}
	}
}

// hopeless reports whether no word that continues from row k can be meant. A swap builds on the row before, but only if
// that has less than the most; then row k has no more than the most either.
func (t *typist) hopeless(k int) bool { return slices.Min(t.rows[k]) > t.most }
