package textindex

import (
	"cmp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// listing is how many times looking at a word it costs to put it into the list of those that texts without an index have.
const listing = 150

// maxGuesses is how many words one with typos is read as: those that most documents have.
const maxGuesses = 5

// Corrected returns the filter as the last search read it, or "" if it was as typed.
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

// correct reads the words that no part has as the most similar ones. It reports whether there are any.
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

// guesses returns the best guesses, the most common first.
func (t *typist) guesses() (words [][]byte) {
	slices.SortFunc(t.found, func(a, b guess) int { return cmp.Or(cmp.Compare(b.count, a.count), strings.Compare(a.word, b.word)) })
	for _, g := range t.found[:min(len(t.found), maxGuesses)] {
		words = append(words, []byte(g.word))
	}
	return words
}

// lexicons are the words of the parts that have no index.
type lexicons map[int]*lexicon

type lexicon struct {
	words  wordList
	counts []int
}

// scan has a typist look at the words of all parts, if none of them has the word itself.
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
