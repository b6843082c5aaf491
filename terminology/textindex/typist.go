package textindex

import (
	"unicode"
	"unicode/utf8"
)

// typos says how many typos to forgive: if a word is meant as a whole, and if it is the beginning of one. None in a
// short one, which could then be anything, and none in one with a digit, since another digit means something else.
func typos(word []byte) (whole, begun int) {
	n := 0
	for i := 0; i < len(word); n++ {
		r, width := utf8.DecodeRune(word[i:])
		if unicode.IsNumber(r) {
			return 0, 0
		}
		i += width
	}
	switch {
	case n < 5 || n > maxCorrected: // four letters are an abbreviation more often than a word
		return 0, 0
	case n == 5:
		return 1, 1
	case n < 8:
		return 2, 1
	default:
		return 2, 2
	}
}

// maxCorrected is up to how many letters of a word typos are forgiven in.
const maxCorrected = 32

// typist finds the words that are most similar to one: a letter too many, too few or wrong, or two swapped, is one typo
// (the restricted Damerau-Levenshtein distance). The first letter must be right. The rows of the distance table are
// kept, so that words with a common beginning, which follow each other in a sorted list, share the work.
type typist struct {
	word         []rune
	whole, begun int                                // how many typos to forgive
	known        int                                // how many rows there are after the first
	seen         [maxCorrected + mostTypos + 2]rune // the letters of these
	rows         [maxCorrected + mostTypos + 2]row

	best  int // the score of the most similar words, twice the typos, and one more if they only begin so
	found []guess
}

// mostTypos is how many typos are forgiven at most.
const mostTypos = 2

// row is what of a row of the distance table may be no more than mostTypos: row k has column j at j-k+mostTypos. More is
// tooMany, whatever it is.
type row [2*mostTypos + 1]uint8

const tooMany = mostTypos + 1

// guess is a word that may be meant.
type guess struct {
	word  string
	count int // of the documents that have it
}

// newTypist prepares for a word.
func newTypist(word []byte) *typist {
	t := &typist{word: []rune(string(word))}
	t.whole, t.begun = typos(word)
	t.best = max(2*t.whole, 2*t.begun+1)
	t.rows[0] = row{tooMany, tooMany, 0, 1, 2}
	return t
}

// scan looks at all words that begin with the same letter; count says how many documents have one.
func (t *typist) scan(words *wordList, count func(i int) int) {
	from, to := words.prefixed([]byte(string(t.word[:1])))
	for from < to {
		word := words.at(from)
		score, decided := t.score(word)
		if score <= t.best {
			if score < t.best {
				t.best, t.found = score, nil
			}
			t.add(string(word), count(from))
		}
		if decided < len(word) {
			from = words.after(from, word[:decided])
		} else {
			from++
		}
	}
}

// add adds a guess, which another part may have made too.
func (t *typist) add(word string, count int) {
	for i := range t.found {
		if t.found[i].word == word {
			t.found[i].count += count
			return
		}
	}
	t.found = append(t.found, guess{word, count})
}

// noScore is that of a word which is not similar.
const noScore = 1 << 30

// score says how similar a word is, and after how many bytes it is decided that it is not, nor any other that begins
// with these.
func (t *typist) score(word []byte) (score, decided int) {
	score = noScore
	k := 0
	for at := 0; at < len(word); {
		r, width := utf8.DecodeRune(word[at:])
		at += width
		if k++; k < len(t.rows) && (k > t.known || t.seen[k] != r) {
			t.step(k, r)
		}
		if unicode.IsNumber(r) || k == 1 && r != t.word[0] {
			return noScore, at
		}
		distance := tooMany
		if end := len(t.word) - k + mostTypos; end >= 0 && end <= 2*mostTypos {
			distance = int(t.rows[k][end])
		}
		if at < len(word) && distance <= t.begun {
			score = min(score, 2*distance+1)
		} else if at == len(word) && distance <= t.whole {
			score = min(score, 2*distance)
		}
		if score == noScore && t.hopeless(k) {
			return noScore, at
		}
	}
	return score, len(word)
}

// step fills row k for the letter r, and drops later rows.
func (t *typist) step(k int, r rune) {
	t.seen[k], t.known = r, k
	above, now := &t.rows[k-1], &t.rows[k]
	left := uint8(tooMany)
	for i := range now {
		j := k + i - mostTypos
		cell := uint8(tooMany)
		switch {
		case j == 0:
			cell = uint8(k)
		case j > 0 && j <= len(t.word):
			cell = min(cell, left+1)
			if i+1 < len(above) {
				cell = min(cell, above[i+1]+1)
			}
			if t.word[j-1] == r {
				cell = min(cell, above[i])
			} else {
				cell = min(cell, above[i]+1)
				if k > 1 && j > 1 && r == t.word[j-2] && t.seen[k-1] == t.word[j-1] {
					cell = min(cell, t.rows[k-2][i]+1)
				}
			}
		}
		now[i], left = cell, cell
	}
}

// hopeless reports whether no word that continues from row k can be as similar as the best. A swap builds on the row
// before, but only if that has less than the most; then row k has no more than the most either.
func (t *typist) hopeless(k int) bool {
	least := uint8(tooMany)
	for _, cell := range t.rows[k] {
		least = min(least, cell)
	}
	return 2*int(least) > t.best
}
