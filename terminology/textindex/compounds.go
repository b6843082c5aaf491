package textindex

import "slices"

// Compounds are the compound words of a corpus, such as Kniegelenkschmerz, with their parts. A nil one has none. It is safe
// for concurrent use.
type Compounds struct {
	words vocabulary
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
	words := newVocabulary()
	j := judge{corpus: c}
	j.spotter.language = l
	for doc := range uint32(c.Len()) {
		j.read(doc)
		for _, s := range j.spotter.spots {
			words.id(s.word)
		}
	}
	return divideWords(l, &words)
}

// divideWords returns the compounds among the words of a corpus.
func divideWords(l *language, words *vocabulary) *Compounds {
	d := newDictionary(l, words)
	c := &Compounds{words: newVocabulary(), from: make([]uint32, 1)}
	var parts []part
	for id := range words.len() {
		word := words.at(uint32(id))
		if parts = d.divide(parts[:0], word, uint32(id)); len(parts) > 0 {
			c.words.id(word)
			c.parts = append(c.parts, parts...)
			c.from = append(c.from, uint32(len(c.parts)))
		}
	}
	c.words.text, c.parts = slices.Clone(c.words.text), slices.Clone(c.parts) // without what they could grow by
	return c
}

// of returns the parts of a word.
func (c *Compounds) of(word []byte) []part {
	if id, ok := c.words.find(word); ok {
		return c.parts[c.from[id]:c.from[id+1]]
	}
	return nil
}

// appendParts appends the parts of compounds among spots. What begins a word is in a head if that is.
func appendParts(spots []spot, of func(word []byte) []part) []spot {
	if of == nil {
		return spots
	}
	for _, s := range spots {
		for _, p := range of(s.word) {
			spots = append(spots, spot{word: s.word[p.from:p.to], head: s.head && p.from == 0})
		}
	}
	return spots
}

// partList has the parts of the words of an index: their number, and where each begins and ends.
type partList struct {
	list  []byte
	every []uint32 // where in list that of every strideth word begins
}

func newPartList(c *Compounds, words *wordList) (l partList) {
	for i := range words.len() {
		if i%stride == 0 {
			l.every = append(l.every, uint32(len(l.list)))
		}
		parts := c.of(words.at(i))
		l.list = append(l.list, byte(len(parts)))
		for _, p := range parts {
			l.list = append(l.list, p.from, p.to)
		}
	}
	l.list = slices.Clone(l.list) // without what it could grow by
	return l
}

// of returns the parts of a word of the index.
func (l *partList) of(words *wordList, word []byte) (parts []part) {
	i, to := words.prefixed(word)
	if i == to || len(words.at(i)) != len(word) {
		return nil
	}
	list := l.list[l.every[i/stride]:]
	for range i % stride {
		list = list[1+2*int(list[0]):]
	}
	for n := range int(list[0]) {
		parts = append(parts, part{list[1+2*n], list[2+2*n]})
	}
	return parts
}

// divide adds the parts of compounds to the documents, once all words are known.
func (b *builder) divide() {
	if b.language.elements == nil {
		return
	}
	c := divideWords(b.language, &b.vocabulary)
	b.divided = c
	lists := make([][]uint32, b.vocabulary.len()) // by word: its parts, as in b.lists
	for id := range lists {
		word := b.vocabulary.at(uint32(id))
		for _, p := range c.of(word) {
			list := 2 * b.number(word[p.from:p.to])
			if p.from > 0 {
				list++
			}
			lists[id] = append(lists[id], list)
		}
	}
	whole := b.stream
	b.stream = wordStream{}
	clear(b.lastSeen)
	b.lists = b.lists[:0]
	at := uint32(0)
	whole.each(func(rank, list uint32) {
		for ; at < rank; at++ {
			b.write()
		}
		b.note(rank, list)
		for _, part := range lists[list/2] {
			b.note(rank, part|list&1)
		}
	})
	for ; at < uint32(len(b.order)); at++ {
		b.write()
	}
	whole.release()
}
