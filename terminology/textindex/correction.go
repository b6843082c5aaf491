package textindex

import (
	"cmp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// lexiconEntryCost is the cost of adding a word to a lexicon relative to the cost of examining a word.
const lexiconEntryCost = 150

// maxGuesses is the maximum number of corrections for a misspelled word. The most frequent words are used.
const maxGuesses = 5

// Corrected returns the filter with the corrections of the last search, or "" if nothing was corrected.
func (t *Filter) Corrected() string {
	if t.corrections == nil {
		return ""
	}
	var words []string
	for _, term := range t.terms {
		for _, word := range term.words {
			if read := t.corrections[string(word)]; read != nil {
				word = read[0]
			}
			words = append(words, string(word))
		}
	}
	return strings.Join(words, " ")
}

// correct finds the most similar words for each word that occurs in none of the parts. It reports whether it found any.
func (t *Filter) correct(parts []Part, spend func(steps int) error) (bool, error) {
	read := map[string][][]byte{}
	var lists lexicons
	for _, term := range t.terms {
		for _, word := range term.words {
			if wholeTypos, _ := toleratedTypos(word); wholeTypos == 0 {
				continue
			}
			corrector := newCorrector(word)
			if err := lists.scan(parts, corrector, word, spend); err != nil {
				return false, err
			}
			if guesses := corrector.bestGuesses(); guesses != nil {
				read[string(word)] = guesses
			}
		}
	}
	if len(read) == 0 {
		return false, nil
	}
	t.corrections, t.language = read, nil
	return true, nil
}

// bestGuesses returns the maxGuesses most frequent guesses, with the most frequent first.
func (t *corrector) bestGuesses() (words [][]byte) {
	slices.SortFunc(t.guesses, func(a, b guess) int { return cmp.Or(cmp.Compare(b.count, a.count), strings.Compare(a.word, b.word)) })
	for _, g := range t.guesses[:min(len(t.guesses), maxGuesses)] {
		words = append(words, []byte(g.word))
	}
	return words
}

// lexicons contains, by index of a part, the words of parts that have no index.
type lexicons map[int]*lexicon

type lexicon struct {
	words  wordList
	counts []int
}

// scan compares the words of all parts with word. If any part contains word itself, it is not misspelled and has no guesses.
func (l *lexicons) scan(parts []Part, t *corrector, word []byte, spend func(steps int) error) error {
	for i := range parts {
		p := &parts[i]
		w := languageOf(p.corpus().Language()).newQueryWord(word, true)
		var words *wordList
		var count func(word int) int
		if x := p.Index; x != nil {
			var r resolvedWord
			if x.resolve(&r, &w); len(r.wholeWords)+len(r.prefixes) > 0 {
				t.guesses, t.bestScore = nil, -1
			}
			words, count = &x.words, x.postings.documentCount
		} else {
			list, err := l.forPart(i, p, spend)
			if err != nil {
				return err
			}
			for j := range list.words.len() {
				if w.fit(list.words.at(j)) != fitNone {
					t.guesses, t.bestScore = nil, -1
				}
			}
			words, count = &list.words, func(j int) int { return list.counts[j] }
		}
		if t.bestScore < 0 {
			return nil
		}
		if err := spend(1 + words.len()/bytesPerStep); err != nil {
			return err
		}
		t.scan(words, count)
	}
	return nil
}

// forPart returns the words of the i-th part, which has no index.
func (l *lexicons) forPart(i int, p *Part, spend func(steps int) error) (*lexicon, error) {
	if list := (*l)[i]; list != nil {
		return list, nil
	}
	j, s := tierMatcher{reader: newReader(p.Corpus), compounds: p.Compounds, spend: spend}, newWordStream()
	for doc := range uint32(p.Corpus.Len()) {
		j.read(doc)
		if j.charge(1 + lexiconEntryCost); j.err != nil {
			return nil, j.err
		}
		for _, token := range j.reader.tokens() {
			s.add(doc, token.word, true)
		}
		s.endDocument()
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
	for _, id := range s.words.sortedIDs() {
		list.words.add([]byte(s.words.words[id]))
		list.counts = append(list.counts, counts[id])
	}
	return list
}

// toleratedTypos returns the maximum number of typos in a word for whole-word and for prefix matches. It is 0 for short words,
// because too many are similar, and for words with digits, because another digit changes the meaning.
func toleratedTypos(word []byte) (wholeTypos, prefixTypos int) {
	n := 0
	for i := 0; i < len(word); n++ {
		r, width := utf8.DecodeRune(word[i:])
		if unicode.IsNumber(r) {
			return 0, 0
		}
		i += width
	}
	switch {
	case n < 5 || n > maxCorrectedLength: // words of four letters are often abbreviations
		return 0, 0
	case n == 5:
		return 1, 1
	case n < 8:
		return 2, 1
	default:
		return 2, 2
	}
}

// maxCorrectedLength is the maximum length, in letters, of a word to be corrected.
const maxCorrectedLength = 32

// corrector finds the words most similar to a word by restricted Damerau-Levenshtein distance: an extra, missing or wrong
// letter and two swapped letters each count as one typo. The first letter must match. Rows of the distance table are reused for
// words with a common prefix, because these are adjacent in a sorted list.
type corrector struct {
	word                    []rune
	wholeTypos, prefixTypos int                                     // maximum number of typos
	validRows               int                                     // number of valid rows after row 0
	rowLetters              [maxCorrectedLength + maxTypos + 2]rune // letters of the valid rows
	rows                    [maxCorrectedLength + maxTypos + 2]row

	bestScore int // best score so far: twice the number of typos, plus one if only a prefix matches
	guesses   []guess
}

// maxTypos is the maximum number of typos in any word.
const maxTypos = 2

// row contains the cells of a row of the distance table that can have a value of at most maxTypos. Column j of row k is at
// index j-k+maxTypos. Higher values are stored as tooManyTypos.
type row [2*maxTypos + 1]uint8

const tooManyTypos = maxTypos + 1

// guess is a possible correction.
type guess struct {
	word  string
	count int // number of documents that contain the word
}

// newCorrector returns a corrector for a misspelled word.
func newCorrector(word []byte) *corrector {
	t := &corrector{word: []rune(string(word))}
	t.wholeTypos, t.prefixTypos = toleratedTypos(word)
	t.bestScore = max(2*t.wholeTypos, 2*t.prefixTypos+1)
	t.rows[0] = row{tooManyTypos, tooManyTypos, 0, 1, 2}
	return t
}

// scan compares all words that have the same first letter. count returns the number of documents that contain the i-th word.
func (t *corrector) scan(words *wordList, count func(i int) int) {
	from, to := words.prefixRange([]byte(string(t.word[:1])))
	for from < to {
		word := words.at(from)
		score, prefixLength := t.score(word)
		if score <= t.bestScore {
			if score < t.bestScore {
				t.bestScore, t.guesses = score, nil
			}
			t.add(string(word), count(from))
		}
		if prefixLength < len(word) {
			from = words.prefixEnd(from, word[:prefixLength])
		} else {
			from++
		}
	}
}

// add adds a guess, or adds count to an equal guess from another part.
func (t *corrector) add(word string, count int) {
	for i := range t.guesses {
		if t.guesses[i].word == word {
			t.guesses[i].count += count
			return
		}
	}
	t.guesses = append(t.guesses, guess{word, count})
}

// noScore is the score of words that are not similar.
const noScore = 1 << 30

// score returns the similarity score of a word; lower is more similar. If no similar word begins with a prefix of the word,
// prefixLength is the length of this prefix, otherwise the length of the word.
func (t *corrector) score(word []byte) (score, prefixLength int) {
	score = noScore
	k := 0
	for at := 0; at < len(word); {
		r, width := utf8.DecodeRune(word[at:])
		at += width
		if k++; k < len(t.rows) && (k > t.validRows || t.rowLetters[k] != r) {
			t.computeRow(k, r)
		}
		if unicode.IsNumber(r) || k == 1 && r != t.word[0] {
			return noScore, at
		}
		distance := tooManyTypos
		if end := len(t.word) - k + maxTypos; end >= 0 && end <= 2*maxTypos {
			distance = int(t.rows[k][end])
		}
		if at < len(word) && distance <= t.prefixTypos {
			score = min(score, 2*distance+1)
		} else if at == len(word) && distance <= t.wholeTypos {
			score = min(score, 2*distance)
		}
		if score == noScore && t.cannotImprove(k) {
			return noScore, at
		}
	}
	return score, len(word)
}

// computeRow computes row k of the table for the letter r. It invalidates later rows.
func (t *corrector) computeRow(k int, r rune) {
	t.rowLetters[k], t.validRows = r, k
	above, now := &t.rows[k-1], &t.rows[k]
	left := uint8(tooManyTypos)
	for i := range now {
		j := k + i - maxTypos
		cell := uint8(tooManyTypos)
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
				if k > 1 && j > 1 && r == t.word[j-2] && t.rowLetters[k-1] == t.word[j-1] {
					cell = min(cell, t.rows[k-2][i]+1)
				}
			}
		}
		now[i], left = cell, cell
	}
}

// cannotImprove reports whether no word that extends the prefix of row k can reach the best score. A swap extends row k-1, but
// only from a cell below the maximum, and then row k also has a cell within the maximum.
func (t *corrector) cannotImprove(k int) bool {
	lowest := uint8(tooManyTypos)
	for _, cell := range t.rows[k] {
		lowest = min(lowest, cell)
	}
	return 2*int(lowest) > t.bestScore
}
