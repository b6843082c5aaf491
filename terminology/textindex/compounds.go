package textindex

import (
	"bytes"
	"math/bits"
	"slices"

	"github.com/caddy-fhir/caddy-fhir/terminology/internal/bitset"
)

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

// Bounds on compound words, in letters. Shorter parts are in too many words that are no compounds.
const (
	fewestPart  = 4
	maxCompound = 64
)

// dictionary divides compound words. It knows the words of a corpus, and takes no other list: what a code system writes
// as a word of its own somewhere is a part elsewhere.
type dictionary struct {
	elements   []string
	forms      map[string]bool  // the words, with and without an ending
	beginnings map[string]uint8 // what stands before such words: in how many, up to 2
	starts     bitset.Set       // the first letters of forms, which most places in a word are not
	ends       []uint64         // by word of the corpus: where a last part may begin
}

// newDictionary returns the dictionary of the words of a corpus.
func newDictionary(l *language, words *vocabulary) *dictionary {
	d := &dictionary{elements: l.elements, forms: map[string]bool{}, beginnings: map[string]uint8{}}
	d.starts, d.ends = bitset.New(26*26*26*26), make([]uint64, len(words.words))
	for _, word := range words.words {
		if word := []byte(word); hasLetters(word) {
			d.starts.Add(start(word))
			d.forms[string(word)] = true
			d.eachForm(word, func(form []byte) bool { d.forms[string(form)] = true; return false })
		}
	}
	for id, word := range words.words {
		if word := []byte(word); hasLetters(word) {
			d.ends[id] = d.endsOf(word)
			d.addBeginnings(word, d.ends[id])
		}
	}
	return d
}

// start numbers the first letters of a word, as many as the shortest part has.
func start(word []byte) (n uint32) {
	for _, c := range word[:fewestPart] {
		n = 26*n + uint32(c-'a')
	}
	return n
}

// endsOf returns where the last part of a word may begin.
func (d *dictionary) endsOf(word []byte) (ends uint64) {
	for at := fewestPart; at <= len(word)-fewestPart; at++ {
		if d.isLast(word[at:]) {
			ends |= 1 << at
		}
	}
	return ends
}

// hasLetters reports whether a word can be a part: it is of Latin letters alone.
func hasLetters(word []byte) bool {
	if len(word) < fewestPart || len(word) > maxCompound {
		return false
	}
	for _, c := range word {
		if c < 'a' || c > 'z' {
			return false
		}
	}
	return true
}

// eachForm visits a word without each ending that it has, until visit returns true.
func (d *dictionary) eachForm(word []byte, visit func(form []byte) bool) bool {
	for _, e := range d.elements {
		if n := len(word) - len(e); n >= fewestPart && string(word[n:]) == e && visit(word[:n]) {
			return true
		}
	}
	return false
}

// addBeginnings notes what of a word stands before another word.
func (d *dictionary) addBeginnings(word []byte, ends uint64) {
	for ; ends != 0; ends &= ends - 1 {
		beginning := word[:bits.TrailingZeros64(ends)]
		if in := d.beginnings[string(beginning)]; in < 2 {
			d.beginnings[string(beginning)] = in + 1
		}
	}
}

func (d *dictionary) isWord(word []byte) bool { return d.forms[string(word)] }

// isLast reports whether a word may be the last part: it may have an ending.
func (d *dictionary) isLast(word []byte) bool {
	return d.starts.Has(start(word)) && (d.isWord(word) || d.eachForm(word, d.isWord))
}

// isPart reports whether a word may be a part before others.
func (d *dictionary) isPart(word []byte) bool {
	return d.isWord(word) || d.beginnings[string(word)] > 1
}

// part is where a part of a compound word is.
type part struct{ from, to uint8 }

// division is how a word can be divided, by where a part begins: where that ends, or 0 if the rest cannot be divided, and
// where the next begins.
type division struct{ to, next [maxCompound]uint8 }

// divide appends the parts of a word of the corpus, and the parts of these. The first is as long as can be, then the next.
func (d *dictionary) divide(parts []part, word []byte, id uint32) []part {
	return d.within(parts, word, d.ends[id], 0)
}

// within is divide for a word that is itself a part, from a position on.
func (d *dictionary) within(parts []part, word []byte, ends uint64, from int) []part {
	var v division
	if ends == 0 || !d.cut(&v, word, ends) {
		return parts
	}
	for at := 0; ; at = int(v.next[at]) {
		to := int(v.to[at])
		parts = append(parts, part{uint8(from + at), uint8(from + to)})
		parts = d.within(parts, word[at:to], d.endsOf(word[at:to]), from+at)
		if to == len(word) {
			return parts
		}
	}
}

// cut finds out how to divide a word, from its end to its beginning. It reports whether that is possible.
func (d *dictionary) cut(v *division, word []byte, ends uint64) bool {
	for at := bits.Len64(ends) - 1; at >= fewestPart; at-- {
		if ends&(1<<at) != 0 {
			v.to[at] = uint8(len(word))
		} else {
			d.cutAt(v, word, at)
		}
	}
	return d.cutAt(v, word, 0)
}

// cutAt finds the longest part from a position on after which the rest can be divided.
func (d *dictionary) cutAt(v *division, word []byte, at int) bool {
	if !d.starts.Has(start(word[at:])) {
		return false
	}
	for to := len(word) - fewestPart; to >= at+fewestPart; to-- {
		if next := d.nextPart(v, word, to); next > 0 && d.isPart(word[at:to]) {
			v.to[at], v.next[at] = uint8(to), uint8(next)
			return true
		}
	}
	return false
}

// nextPart returns where a part begins after one that ends at a position: there, or after a linking element; 0 for
// nowhere.
func (d *dictionary) nextPart(v *division, word []byte, to int) int {
	if v.to[to] > 0 {
		return to
	}
	for _, e := range d.elements {
		if next := to + len(e); next <= len(word)-fewestPart && v.to[next] > 0 && bytes.HasPrefix(word[to:], []byte(e)) {
			return next
		}
	}
	return 0
}
