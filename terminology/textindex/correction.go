package textindex

import (
	"cmp"
	"slices"
	"strings"
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
