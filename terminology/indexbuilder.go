package terminology

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"hash/maphash"
	"runtime"
	"slices"
	"unicode/utf8"
)

// indexBuilder builds an index. It reads each text once, in the order of the ranks, and notes the words of
// each document by their number; a counting sort turns that into postings.
type indexBuilder struct {
	index
	folder folder

	vocabulary vocabulary
	lastSeen   []uint32    // by word: the document, plus one, in which it was seen last
	count      []uint32    // by word: how many documents have it
	stream     chunkedList // the words of one document after the other, each list ended by endOfWords

	displays, codes sortKeys
	letters         runeSetsBuilder
	initials        runeSetsBuilder
	symbols         runeSetsBuilder
	others          [][]byte
	joined          []byte
}

// endOfWords ends the words of a document in indexBuilder.stream.
const endOfWords = ^uint32(0)

// newIndex builds the index of a corpus.
func newIndex(c corpus) *index {
	n := c.len()
	b := &indexBuilder{index: index{corpus: c, order: staticOrder(c)}, vocabulary: newVocabulary()}
	b.displays.from, b.codes.from = make([]uint32, 1, n+1), make([]uint32, 1, n+1)
	b.letters.n, b.initials.n, b.symbols.n = n, n, n
	for rank, doc := range b.order {
		b.read(uint32(rank), doc)
	}
	b.byDisplay, b.byCode = b.displays.sort(), b.codes.sort()
	b.displays, b.codes = sortKeys{}, sortKeys{}
	b.collect()
	b.post()
	b.index.letters, b.index.initials, b.index.symbols = b.letters.build(), b.initials.build(), b.symbols.build()
	b.common = findCommon(&b.index)
	x := b.index
	b.collect()
	return &x
}

// collect asks the garbage collector to make use of what a large index no longer needs while it is built.
func (b *indexBuilder) collect() {
	if len(b.order) >= large {
		runtime.GC()
	}
}

// staticOrder returns the documents in the order that answers have within a tier: the shorter display
// first, then the active concept, then the order of the corpus.
func staticOrder(c corpus) []uint32 {
	keys := make([]uint64, c.len())
	for doc := range keys {
		keys[doc] = uint64(staticKey(c, uint32(doc)))<<32 | uint64(doc)
	}
	slices.Sort(keys)
	order := make([]uint32, len(keys))
	for rank, key := range keys {
		order[rank] = uint32(key)
	}
	return order
}

// staticKey is what documents are sorted by within a tier.
func staticKey(c corpus, doc uint32) uint32 {
	key := uint32(min(utf8.RuneCount(c.display(doc)), 1<<30)) << 1
	if c.inactive(doc) {
		key |= 1
	}
	return key
}

// read takes up one document.
func (b *indexBuilder) read(rank, doc uint32) {
	display, code := b.corpus.display(doc), b.corpus.code(doc)
	line := b.folder.words(display)
	b.displays.add(line)
	b.characters(rank, line)
	b.add(rank, line)
	b.signs(rank, display)
	b.signs(rank, code)
	line = b.folder.words(code)
	b.joined = appendJoined(b.joined[:0], line)
	b.codes.add(b.joined)
	b.add(rank, line)
	if len(b.joined) > 0 {
		b.word(rank, b.joined)
	}
	b.others = b.corpus.appendOthers(b.others[:0], doc)
	for _, other := range b.others {
		b.add(rank, b.folder.words(other))
	}
	b.stream.append(endOfWords)
}

// add takes up the words of one text.
func (b *indexBuilder) add(rank uint32, line []byte) {
	for len(line) > 0 {
		var word []byte
		word, line = nextWord(line)
		b.word(rank, word)
	}
}

// word takes up one word.
func (b *indexBuilder) word(rank uint32, word []byte) {
	id := b.vocabulary.id(word)
	if int(id) == len(b.lastSeen) {
		b.lastSeen, b.count = append(b.lastSeen, 0), append(b.count, 0)
	}
	if b.lastSeen[id] == rank+1 {
		return
	}
	b.lastSeen[id] = rank + 1
	b.count[id]++
	b.stream.append(id)
}

// characters takes up the letters and digits of a display.
func (b *indexBuilder) characters(rank uint32, line []byte) {
	initial := false
	for i := 0; i < len(line); {
		r, width := utf8.DecodeRune(line[i:])
		i += width
		if r == ' ' {
			initial = true
			continue
		}
		b.letters.add(r, rank)
		if initial {
			b.initials.add(r, rank)
			initial = false
		}
	}
}

// signs takes up whatever in a text is neither letter nor digit.
func (b *indexBuilder) signs(rank uint32, text []byte) {
	for i := 0; i < len(text); {
		r, width := rune(text[i]), 1
		if r >= utf8.RuneSelf {
			r, width = utf8.DecodeRune(text[i:])
		}
		i += width
		if r != ' ' && !isWordRune(r) {
			b.symbols.add(r, rank)
		}
	}
}

// post turns the stream into postings, by word in sorted order.
func (b *indexBuilder) post() {
	sorted := b.vocabulary.sorted()
	b.from = make([]uint32, len(sorted)+1)
	next := b.lastSeen // no longer needed: where the next posting of each word goes
	text := 0
	for i, id := range sorted {
		b.from[i+1] = b.from[i] + b.count[id]
		next[id] = b.from[i]
		text += len(b.vocabulary.at(id))
	}
	b.words = wordList{text: make([]byte, 0, text), from: make([]uint32, 1, len(sorted)+1)}
	for _, id := range sorted {
		b.words.text = append(b.words.text, b.vocabulary.at(id)...)
		b.words.from = append(b.words.from, uint32(len(b.words.text)))
	}
	b.vocabulary = vocabulary{}
	b.postings = make([]uint32, b.from[len(sorted)])
	rank := uint32(0)
	b.stream.drain(func(id uint32) {
		if id == endOfWords {
			rank++
			return
		}
		b.postings[next[id]] = rank
		next[id]++
	})
}

// vocabulary numbers words in the order in which they are first seen.
type vocabulary struct {
	text []byte
	from []uint32 // word i is text[from[i]:from[i+1]]
	hash []uint32 // by word, so that the table can grow without reading the words again
	slot []uint32 // open hash table of numbers plus one
	seed maphash.Seed
}

func newVocabulary() vocabulary {
	return vocabulary{from: make([]uint32, 1), slot: make([]uint32, 1<<10), seed: maphash.MakeSeed()}
}

// at returns a word.
func (v *vocabulary) at(id uint32) []byte { return v.text[v.from[id]:v.from[id+1]] }

// id returns the number of a word, a new one if it was not seen before.
func (v *vocabulary) id(word []byte) uint32 {
	hash := uint32(maphash.Bytes(v.seed, word))
	mask := uint32(len(v.slot) - 1)
	at := hash & mask
	for ; v.slot[at] != 0; at = (at + 1) & mask {
		if id := v.slot[at] - 1; v.hash[id] == hash && bytes.Equal(v.at(id), word) {
			return id
		}
	}
	id := uint32(len(v.hash))
	v.slot[at] = id + 1
	v.text = append(v.text, word...)
	v.from = append(v.from, uint32(len(v.text)))
	v.hash = append(v.hash, hash)
	if len(v.hash)*2 > len(v.slot) {
		v.grow()
	}
	return id
}

// grow doubles the table.
func (v *vocabulary) grow() {
	v.slot = make([]uint32, 2*len(v.slot))
	mask := uint32(len(v.slot) - 1)
	for id, hash := range v.hash {
		at := hash & mask
		for v.slot[at] != 0 {
			at = (at + 1) & mask
		}
		v.slot[at] = uint32(id) + 1
	}
}

// sorted returns the numbers in the order of their words.
func (v *vocabulary) sorted() []uint32 {
	return sortByText(len(v.hash), v.text, v.from)
}

// sortKeys are texts to sort ranks by.
type sortKeys struct {
	text []byte
	from []uint32
}

// add appends the text of the next rank.
func (k *sortKeys) add(text []byte) {
	k.text = append(k.text, text...)
	k.from = append(k.from, uint32(len(k.text)))
}

// sort returns the ranks in the order of their texts.
func (k *sortKeys) sort() []uint32 { return sortByText(len(k.from)-1, k.text, k.from) }

// sortByText sorts the numbers below n by their texts, text[from[i]:from[i+1]], and then by themselves.
// The first bytes of each are kept beside it, since most comparisons need no more.
func sortByText(n int, text []byte, from []uint32) []uint32 {
	type keyed struct {
		start uint64
		id    uint32
	}
	all := make([]keyed, n)
	for i := range all {
		var start [8]byte
		copy(start[:], text[from[i]:from[i+1]])
		all[i] = keyed{start: binary.BigEndian.Uint64(start[:]), id: uint32(i)}
	}
	slices.SortFunc(all, func(a, b keyed) int {
		if a.start != b.start {
			return cmp.Compare(a.start, b.start)
		}
		c := bytes.Compare(text[from[a.id]:from[a.id+1]], text[from[b.id]:from[b.id+1]])
		return cmp.Or(c, cmp.Compare(a.id, b.id))
	})
	ids := make([]uint32, n)
	for i, k := range all {
		ids[i] = k.id
	}
	return ids
}

// chunkedList is a list that grows without being copied.
type chunkedList struct{ chunks [][]uint32 }

// append adds a number.
func (c *chunkedList) append(n uint32) {
	last := len(c.chunks) - 1
	if last < 0 || len(c.chunks[last]) == cap(c.chunks[last]) {
		size := 1 << 10
		if last >= 0 {
			size = min(1<<17, 4*cap(c.chunks[last]))
		}
		c.chunks, last = append(c.chunks, make([]uint32, 0, size)), last+1
	}
	c.chunks[last] = append(c.chunks[last], n)
}

// drain calls visit with each number and forgets it.
func (c *chunkedList) drain(visit func(uint32)) {
	for i, chunk := range c.chunks {
		for _, n := range chunk {
			visit(n)
		}
		c.chunks[i] = nil
	}
}
