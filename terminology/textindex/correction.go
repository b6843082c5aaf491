package textindex

import (
	"cmp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// listing is the cost of adding a word to a lexicon, in multiples of the cost of examining a word.
const listing = 150

// maxGuesses is the maximum number of corrections for a misspelled word; the most frequent words are kept.
const maxGuesses = 5

// Corrected returns the filter as corrected by the last search, or "" if nothing was corrected.
func (t *Filter) Corrected() string {
	if t.read == nil {
		return ""
	}
	var words []string
	for _, term := range t.terms {
		for _, word := range term.words {
			if read := t.read[string(word)]; read != nil {
				word = read[0]
			}
			words = append(words, string(word))
		}
	}
	return strings.Join(words, " ")
}

// correct replaces words that occur in no part by the most similar words. It reports whether it replaced any.
func (t *Filter) correct(parts []Part, spend func(steps int) error) (bool, error) {
	read := map[string][][]byte{}
	var lists lexicons
	for _, term := range t.terms {
		for _, word := range term.words {
			if whole, _ := typos(word); whole == 0 {
				continue
			}
			typist := newTypist(word)
			if err := lists.scan(parts, typist, word, spend); err != nil {
				return false, err
			}
			if guesses := typist.guesses(); guesses != nil {
				read[string(word)] = guesses
			}
		}
	}
	if len(read) == 0 {
		return false, nil
	}
	t.read, t.language = read, nil
	return true, nil
}

// guesses returns the best guesses, the most frequent first.
func (t *typist) guesses() (words [][]byte) {
	slices.SortFunc(t.found, func(a, b guess) int { return cmp.Or(cmp.Compare(b.count, a.count), strings.Compare(a.word, b.word)) })
	for _, g := range t.found[:min(len(t.found), maxGuesses)] {
		words = append(words, []byte(g.word))
	}
	return words
}

// lexicons contains the words of the parts without an index.
type lexicons map[int]*lexicon

type lexicon struct {
	words  wordList
	counts []int
}

// scan compares the words of all parts with a misspelled word. It finds nothing if any part contains the word itself.
func (l *lexicons) scan(parts []Part, t *typist, word []byte, spend func(steps int) error) error {
	for i := range parts {
		p := &parts[i]
		w := languageOf(p.corpus().Language()).wanted(word, true)
		var words *wordList
		var count func(word int) int
		if x := p.Index; x != nil {
			var r resolved
			if x.resolve(&r, &w); len(r.whole)+len(r.begun) > 0 {
				t.found, t.best = nil, -1
			}
			words, count = &x.words, x.postings.documents
		} else {
			list, err := l.of(i, p, spend)
			if err != nil {
				return err
			}
			for j := range list.words.len() {
				if w.fit(list.words.at(j)) != fitNot {
					t.found, t.best = nil, -1
				}
			}
			words, count = &list.words, func(j int) int { return list.counts[j] }
		}
		if t.best < 0 {
			return nil
		}
		if err := spend(1 + words.len()/bytesPerStep); err != nil {
			return err
		}
		t.scan(words, count)
	}
	return nil
}

// of returns the words of a part without an index.
func (l *lexicons) of(i int, p *Part, spend func(steps int) error) (*lexicon, error) {
	if list := (*l)[i]; list != nil {
		return list, nil
	}
	j, s := judge{reader: newReader(p.Corpus), divided: p.Compounds, spend: spend}, newWordStream()
	for doc := range uint32(p.Corpus.Len()) {
		j.read(doc)
		if j.pay(1 + listing); j.err != nil {
			return nil, j.err
		}
		for _, spot := range j.reader.spots() {
			s.add(doc, spot.word, true)
		}
		s.end()
	}
	if *l == nil {
		*l = lexicons{}
	}
	(*l)[i] = newLexicon(s)
	return (*l)[i], nil
}

func newLexicon(s *wordStream) *lexicon {
	counts := make([]int, len(s.words.words))
	s.each(func(_, word uint32) { counts[word/2]++ })
	list := new(lexicon)
	for _, id := range s.words.sorted() {
		list.words.add([]byte(s.words.words[id]))
		list.counts = append(list.counts, counts[id])
	}
	return list
}

// typos returns the number of typos to tolerate in a word, when matched as a whole and as a prefix. Short words
// tolerate none because too many words are similar, words with digits because another digit changes the meaning.
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
	case n < 5 || n > maxCorrected: // four letters are more often an abbreviation than a word
		return 0, 0
	case n == 5:
		return 1, 1
	case n < 8:
		return 2, 1
	default:
		return 2, 2
	}
}

// maxCorrected is the maximum length of a word to correct, in letters.
const maxCorrected = 32

// typist finds the words most similar to a word by restricted Damerau-Levenshtein distance: an extra, missing or wrong
// letter, or two swapped letters, count as one typo. The first letter must match. Rows of the distance table are reused
// between words with a common prefix, which are adjacent in a sorted list.
type typist struct {
	word         []rune
	whole, begun int                                // tolerated typos
	known        int                                // number of valid rows after the first
	seen         [maxCorrected + mostTypos + 2]rune // letters of the valid rows
	rows         [maxCorrected + mostTypos + 2]row

	best  int // lowest score so far: twice the typos, plus one if only a prefix matches
	found []guess
}

// mostTypos is the maximum number of tolerated typos.
const mostTypos = 2

// row contains the cells of a row of the distance table that can be at most mostTypos: row k has column j at
// j-k+mostTypos. Higher values are capped at tooMany.
type row [2*mostTypos + 1]uint8

const tooMany = mostTypos + 1

// guess is a possible correction.
type guess struct {
	word  string
	count int // number of documents with the word
}

// newTypist returns a typist for a misspelled word.
func newTypist(word []byte) *typist {
	t := &typist{word: []rune(string(word))}
	t.whole, t.begun = typos(word)
	t.best = max(2*t.whole, 2*t.begun+1)
	t.rows[0] = row{tooMany, tooMany, 0, 1, 2}
	return t
}

// scan compares all words with the same first letter; count returns the number of documents with a word.
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

// add adds a guess, merging equal guesses of several parts.
func (t *typist) add(word string, count int) {
	for i := range t.found {
		if t.found[i].word == word {
			t.found[i].count += count
			return
		}
	}
	t.found = append(t.found, guess{word, count})
}

// noScore is the score of a word that is not similar.
const noScore = 1 << 30

// score returns the similarity score of a word. For a dissimilar word, decided is the length of the prefix that no
// similar word has.
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

// step computes row k for the letter r and invalidates later rows.
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

// hopeless reports whether no continuation of row k can reach the best score. A swap extends the row before the last,
// but only from a cell below the maximum, and then row k has a cell within the maximum too.
func (t *typist) hopeless(k int) bool {
	least := uint8(tooMany)
	for _, cell := range t.rows[k] {
		least = min(least, cell)
	}
	return 2*int(least) > t.best
}
