package textindex

import (
	"bytes"
	"math/bits"
	"slices"

	"github.com/caddy-fhir/caddy-fhir/terminology/internal/bitset"
)

// Compounds contains the compound words of a corpus, such as Kniegelenkschmerz, and their parts. nil is valid and empty. It is
// safe for concurrent use.
type Compounds struct {
	words wordList
	from  []uint32 // the parts of word i are parts[from[i]:from[i+1]]
	parts []part
}

// NewCompounds returns the compound words of a corpus that is searched without an index. It returns nil if the language does
// not write compounds as one word.
func NewCompounds(c Corpus) *Compounds {
	l := languageOf(c.Language())
	if l.linkingElements == nil {
		return nil
	}
	words, r := newVocabulary(), newReader(c)
	for doc := range uint32(c.Len()) {
		r.read(doc)
		for _, s := range r.tokens() {
			words.id(s.word)
		}
	}
	return splitCompounds(l, &words)
}

// splitCompounds returns the compounds among words and their parts.
func splitCompounds(l *language, words *vocabulary) *Compounds {
	d := newDictionary(l, words)
	c := &Compounds{from: make([]uint32, 1)}
	var parts []part
	for _, id := range words.sortedIDs() {
		word := []byte(words.words[id])
		if parts = d.appendWordParts(parts[:0], word, id); len(parts) > 0 {
			c.words.add(word)
			c.parts = append(c.parts, parts...)
			c.from = append(c.from, uint32(len(c.parts)))
		}
	}
	c.words.text, c.parts = slices.Clone(c.words.text), slices.Clone(c.parts) // removes excess capacity
	return c
}

// partsOf returns the parts of a compound, or nil for any other word.
func (c *Compounds) partsOf(word []byte) []part {
	if i, ok := c.words.find(word); ok {
		return c.parts[c.from[i]:c.from[i+1]]
	}
	return nil
}

func (c *Compounds) bytes() int { return c.words.bytes() + 4*len(c.from) + 2*len(c.parts) }

// Limits on compound words, in letters. Shorter parts occur in too many words that are not compounds.
const (
	minPartLength     = 4
	maxCompoundLength = 64
)

// dictionary splits compound words. It is built from the corpus alone: words that occur on their own in a code system are
// usually also the parts of its compounds.
type dictionary struct {
	linkingElements []string
	forms           map[string]bool  // words in the corpus, with and without endings
	beginnings      map[string]uint8 // prefixes of words that precede a possible last part, and how many words have them, at most 2
	firstLetters    bitset.Set       // first letters of forms (see encodePrefix), to exclude most positions quickly
	lastPartStarts  []uint64         // by word number: bitmask of the positions at which the last part may begin
}

// newDictionary returns a dictionary based on the words of a corpus.
func newDictionary(l *language, words *vocabulary) *dictionary {
	d := &dictionary{linkingElements: l.linkingElements, forms: map[string]bool{}, beginnings: map[string]uint8{}}
	d.firstLetters, d.lastPartStarts = bitset.New(26*26*26*26), make([]uint64, len(words.words))
	for _, word := range words.words {
		if word := []byte(word); canBePart(word) {
			d.firstLetters.Add(encodePrefix(word))
			d.forms[string(word)] = true
			d.eachForm(word, func(form []byte) bool { d.forms[string(form)] = true; return false })
		}
	}
	for id, word := range words.words {
		if word := []byte(word); canBePart(word) {
			d.lastPartStarts[id] = d.lastPartStartsOf(word)
			d.addBeginnings(word, d.lastPartStarts[id])
		}
	}
	return d
}

// encodePrefix encodes the first minPartLength letters of a word as a number.
func encodePrefix(word []byte) (n uint32) {
	for _, c := range word[:minPartLength] {
		n = 26*n + uint32(c-'a')
	}
	return n
}

// lastPartStartsOf returns a bitmask of the positions at which the last part of a word may begin.
func (d *dictionary) lastPartStartsOf(word []byte) (ends uint64) {
	for at := minPartLength; at <= len(word)-minPartLength; at++ {
		if d.isLastPart(word[at:]) {
			ends |= 1 << at
		}
	}
	return ends
}

// canBePart reports whether a word has a valid length and consists of Latin letters, so it can be a part.
func canBePart(word []byte) bool {
	if len(word) < minPartLength || len(word) > maxCompoundLength {
		return false
	}
	for _, c := range word {
		if c < 'a' || c > 'z' {
			return false
		}
	}
	return true
}

// eachForm calls visit with the word without each ending that it has, until visit returns true.
func (d *dictionary) eachForm(word []byte, visit func(form []byte) bool) bool {
	for _, e := range d.linkingElements {
		if n := len(word) - len(e); n >= minPartLength && string(word[n:]) == e && visit(word[:n]) {
			return true
		}
	}
	return false
}

// addBeginnings counts each prefix of a word that precedes a possible last part. The bits of ends are the parts' positions.
func (d *dictionary) addBeginnings(word []byte, ends uint64) {
	for ; ends != 0; ends &= ends - 1 {
		beginning := word[:bits.TrailingZeros64(ends)]
		if in := d.beginnings[string(beginning)]; in < 2 {
			d.beginnings[string(beginning)] = in + 1
		}
	}
}

func (d *dictionary) isWord(word []byte) bool { return d.forms[string(word)] }

// isLastPart reports whether a word can be the last part of a compound, possibly with an ending.
func (d *dictionary) isLastPart(word []byte) bool {
	return d.firstLetters.Has(encodePrefix(word)) && (d.isWord(word) || d.eachForm(word, d.isWord))
}

// isPart reports whether a word can be a part of a compound before the last part.
func (d *dictionary) isPart(word []byte) bool {
	return d.isWord(word) || d.beginnings[string(word)] > 1
}

// part contains the start and the end of a part within a compound word.
type part struct{ from, to uint8 }

// compoundSplit contains, by start position of a part, the end of the part and the start of the next part. The end is 0 if the
// rest of the word cannot be split from this position.
type compoundSplit struct{ to, next [maxCompoundLength]uint8 }

// appendWordParts appends the parts of the word with this number and, recursively, their parts. Parts are as long as possible.
func (d *dictionary) appendWordParts(parts []part, word []byte, id uint32) []part {
	return d.appendRangeParts(parts, word, d.lastPartStarts[id], 0)
}

// appendRangeParts is like appendWordParts, but for word, a part that starts at position from of a longer word.
func (d *dictionary) appendRangeParts(parts []part, word []byte, ends uint64, from int) []part {
	var v compoundSplit
	if ends == 0 || !d.computeSplit(&v, word, ends) {
		return parts
	}
	for at := 0; ; at = int(v.next[at]) {
		to := int(v.to[at])
		parts = append(parts, part{uint8(from + at), uint8(from + to)})
		parts = d.appendRangeParts(parts, word[at:to], d.lastPartStartsOf(word[at:to]), from+at)
		if to == len(word) {
			return parts
		}
	}
}

// computeSplit computes how a word is split, from its end to its beginning. It reports whether the word can be split.
func (d *dictionary) computeSplit(v *compoundSplit, word []byte, ends uint64) bool {
	for at := bits.Len64(ends) - 1; at >= minPartLength; at-- {
		if ends&(1<<at) != 0 {
			v.to[at] = uint8(len(word))
		} else {
			d.computeSplitAt(v, word, at)
		}
	}
	return d.computeSplitAt(v, word, 0)
}

// computeSplitAt finds the longest part that starts at a position and is followed by a rest that can be split.
func (d *dictionary) computeSplitAt(v *compoundSplit, word []byte, at int) bool {
	if !d.firstLetters.Has(encodePrefix(word[at:])) {
		return false
	}
	for to := len(word) - minPartLength; to >= at+minPartLength; to-- {
		if next := d.nextPart(v, word, to); next > 0 && d.isPart(word[at:to]) {
			v.to[at], v.next[at] = uint8(to), uint8(next)
			return true
		}
	}
	return false
}

// nextPart returns the start of the part that follows a part ending at to, either directly or after a linking element. It
// returns 0 if no part follows.
func (d *dictionary) nextPart(v *compoundSplit, word []byte, to int) int {
	if v.to[to] > 0 {
		return to
	}
	for _, e := range d.linkingElements {
		if next := to + len(e); next <= len(word)-minPartLength && v.to[next] > 0 && bytes.HasPrefix(word[to:], []byte(e)) {
			return next
		}
	}
	return 0
}
