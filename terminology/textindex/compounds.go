package textindex

import "slices"

// Compounds are the compound words of a corpus, such as Kniegelenkschmerz, with their parts. A nil one has none. It is safe
// for concurrent use.
type Compounds struct {
	words wordList
	from  []uint32 // the parts of word i are parts[from[i]:from[i+1]]
	parts []part
}

// NewCompounds returns the compound words of a corpus that is searched without an index; nil if its language writes the
// parts of a compound as words of their own.
func NewCompounds(c Corpus) *Compounds {
	l := languageOf(c.Language())
	if l.elements == nil {
		return nil
	}
	words, r := newVocabulary(), newReader(c)
	for doc := range uint32(c.Len()) {
		r.read(doc)
		for _, s := range r.spots() {
			words.id(s.word)
		}
	}
	return divideWords(l, &words)
}

// divideWords returns the compounds among the words of a corpus.
func divideWords(l *language, words *vocabulary) *Compounds {
	d := newDictionary(l, words)
	c := &Compounds{from: make([]uint32, 1)}
	var parts []part
	for _, id := range words.sorted() {
		word := []byte(words.words[id])
		if parts = d.divide(parts[:0], word, id); len(parts) > 0 {
			c.words.add(word)
			c.parts = append(c.parts, parts...)
			c.from = append(c.from, uint32(len(c.parts)))
		}
	}
	c.words.text, c.parts = slices.Clone(c.words.text), slices.Clone(c.parts) // without what they could grow by
	return c
}

// of returns the parts of a word.
func (c *Compounds) of(word []byte) []part {
	if i, ok := c.words.find(word); ok {
		return c.parts[c.from[i]:c.from[i+1]]
	}
	return nil
}

func (c *Compounds) bytes() int { return c.words.bytes() + 4*len(c.from) + 2*len(c.parts) }
