package textindex

import (
	"encoding/binary"
	"math/bits"
	"runtime/debug"
	"slices"
	"unicode/utf8"

	"github.com/caddy-fhir/caddy-fhir/terminology/offheap"
)

// builder builds an index. It goes through the documents by rank and notes the numbers of their words; a counting sort
// turns these into postings.
type builder struct {
	Index
	folder folder

	vocabulary vocabulary
	lastSeen   []uint32 // by word: the last document it was seen in, plus one
	stream     wordStream

	letters, initials, symbols runeSetsBuilder

	others [][]byte
	joined []byte
}

// Large is from how many documents on an index is kept off the heap.
const Large = 5000

// New builds the index of a corpus, which must not change afterwards.
func New(c Corpus) *Index {
	b := &builder{Index: Index{corpus: c, order: staticOrder(c)}, vocabulary: newVocabulary()}
	byDisplay := b.sorted(func(dst []byte, doc uint32) []byte { return append(dst, b.folder.words(c.Display(doc))...) })
	byCode := b.sorted(func(dst []byte, doc uint32) []byte { return appendJoined(dst, b.folder.words(c.Code(doc))) })
	for ranks := range slices.Chunk(byDisplay, block) {
		b.lowest = append(b.lowest, slices.Min(ranks))
	}
	displays, codes := make([]uint64, c.Len()), make([]uint64, c.Len())
	for i := range c.Len() {
		displays[i] = prefixKey(b.folder.words(c.Display(b.order[byDisplay[i]])))
		b.joined = appendJoined(b.joined[:0], b.folder.words(c.Code(b.order[byCode[i]])))
		codes[i] = prefixKey(b.joined)
	}
	b.displays, b.codes = newTextOrder(byDisplay, displays), newTextOrder(byCode, codes)
	b.collect()
	n := c.Len()
	b.letters.n, b.initials.n, b.symbols.n = n, n, n
	for rank, doc := range b.order {
		b.read(uint32(rank), doc)
	}
	b.collect()
	b.post()
	b.collect()
	b.Index.letters, b.Index.initials, b.Index.symbols = b.letters.build(), b.initials.build(), b.symbols.build()
	b.common = findCommon(&b.Index)
	x := b.Index
	b.Index = Index{}
	if n >= Large {
		m := new(offheap.Memory)
		x.settle(m)
		offheap.Own(&x, m)
		debug.FreeOSMemory()
	}
	return &x
}

func (x *Index) settle(m *offheap.Memory) {
	c := &x.common
	offheap.Move(m, &x.order, &x.words.from, &x.from, &x.displays.ranks, &x.lowest, &x.codes.ranks)
	offheap.Move(m, &c.from, &c.to, &c.count, &c.first, &c.leading, &c.dense)
	offheap.Move(m, &x.letters.lists, &x.initials.lists, &x.symbols.lists)
	offheap.Move(m, &x.displays.keys, &x.codes.keys, &c.sets, &x.letters.bits, &x.initials.bits, &x.symbols.bits)
	offheap.Move(m, &x.words.text, &x.postings)
}

// sorted returns the ranks in the order of a text of their documents.
func (b *builder) sorted(appendText func(dst []byte, doc uint32) []byte) []uint32 {
	var text []byte
	from := make([]uint32, 1, len(b.order)+1)
	for i, doc := range b.order {
		if i == 1000 { // estimated from these
			text = slices.Grow(text, len(text)*len(b.order)/i)
		}
		text = appendText(text, doc)
		from = append(from, uint32(len(text)))
	}
	return sortByText(len(b.order), text, from)
}

// collect frees memory that a large index no longer needs while it is built.
func (b *builder) collect() {
	if len(b.order) >= Large {
		debug.FreeOSMemory()
	}
}

// staticOrder returns the documents as they are ordered within a tier: shorter displays first, then active concepts,
// then the order of the corpus.
func staticOrder(c Corpus) []uint32 {
	keys := make([]uint64, c.Len())
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

// staticKey orders documents within a tier.
func staticKey(c Corpus, doc uint32) uint32 {
	key := uint32(min(utf8.RuneCount(c.Display(doc)), 1<<30)) << 1
	if c.Inactive(doc) {
		key |= 1
	}
	return key
}

// read reads one document.
func (b *builder) read(rank, doc uint32) {
	display, code := b.corpus.Display(doc), b.corpus.Code(doc)
	line := b.folder.withInner(b.folder.words(display))
	b.characters(rank, line)
	b.add(rank, line)
	b.signs(rank, display)
	b.signs(rank, code)
	line = b.folder.words(code)
	b.joined = appendJoined(b.joined[:0], line)
	b.add(rank, line)
	if len(b.joined) > 0 {
		b.word(rank, b.joined)
	}
	b.others = b.corpus.AppendOthers(b.others[:0], doc)
	for _, other := range b.others {
		b.add(rank, b.folder.withInner(b.folder.words(other)))
	}
	b.stream.append(0)
}

func (b *builder) add(rank uint32, line []byte) {
	for len(line) > 0 {
		var word []byte
		word, line = nextWord(line)
		b.word(rank, word)
	}
}

func (b *builder) word(rank uint32, word []byte) {
	id := b.vocabulary.id(word)
	if int(id) == len(b.lastSeen) {
		b.lastSeen = append(b.lastSeen, 0)
	}
	if b.lastSeen[id] == rank+1 {
		return
	}
	b.lastSeen[id] = rank + 1
	b.stream.append(id + 1)
}

// characters adds the letters and digits of a display.
func (b *builder) characters(rank uint32, line []byte) {
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

// signs adds whatever in a text is neither letter nor digit.
func (b *builder) signs(rank uint32, text []byte) {
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

// post turns the stream into postings, sorted by word. It goes through it twice: to measure each word's bytes, and to
// write them.
func (b *builder) post() {
	sorted := sortByText(len(b.vocabulary.hash), b.vocabulary.text, b.vocabulary.from)
	last, next := b.lastSeen, make([]uint32, len(sorted)) // by word: its last rank, and where its next one goes
	clear(last)
	b.stream.each(func(rank, word uint32) {
		next[word] += varintLength(rank - last[word])
		last[word] = rank
	})
	text := 0
	b.from = make([]uint32, len(sorted)+1)
	for i, word := range sorted {
		b.from[i+1] = b.from[i] + next[word]
		next[word] = b.from[i]
		text += len(b.vocabulary.at(word))
	}
	b.words = wordList{text: make([]byte, 0, text), from: make([]uint32, 1, len(sorted)+1)}
	for _, word := range sorted {
		b.words.text = append(b.words.text, b.vocabulary.at(word)...)
		b.words.from = append(b.words.from, uint32(len(b.words.text)))
	}
	for i := 0; i < b.words.len(); i += stride {
		b.words.every = append(b.words.every, prefixKey(b.words.at(i)))
	}
	b.vocabulary = vocabulary{}
	b.postings = make([]byte, b.from[len(sorted)])
	clear(last)
	b.stream.each(func(rank, word uint32) {
		next[word] += uint32(binary.PutUvarint(b.postings[next[word]:], uint64(rank-last[word])))
		last[word] = rank
	})
	b.stream.release()
}

func varintLength(n uint32) uint32 { return uint32(bits.Len32(n|1)+6) / 7 }
