package textindex

import (
	"encoding/binary"
	"math/bits"
	"runtime/debug"
	"slices"
	"unicode/utf8"

	"github.com/caddy-fhir/caddy-fhir/terminology/internal/offheap"
)

// builder builds an index. It goes through the documents by rank and notes the numbers of their words; a counting sort
// turns these into postings.
type builder struct {
	Index
	folder  folder
	spotter spotter

	vocabulary vocabulary
	lastSeen   []uint32 // by word: the last document it was seen in, plus one
	position   []uint32 // by word: where in lists that document has it
	lists      []uint32 // of the document that is read: twice the number of each word, plus one if it is not in a head
	stream     wordStream
	divided    *Compounds // nil if the language has none

	letters, initials, symbols runeSetsBuilder

	others [][]byte
	joined []byte
	text   []byte

	display []byte // the words of that of the document that is read
}

// Large is from how many documents on an index is kept off the heap.
const Large = 5000

// New builds the index of a corpus, which must not change afterwards.
func New(c Corpus) *Index {
	b := &builder{vocabulary: newVocabulary()}
	b.corpus = c
	b.order, b.chosen = staticOrder(c)
	b.language = languageOf(c.Language())
	b.spotter.language = b.language
	byDisplay := b.sorted(func(dst []byte, doc uint32) []byte { return append(dst, b.folder.words(c.Display(doc))...) })
	byCode := b.sorted(func(dst []byte, doc uint32) []byte { return appendJoined(dst, b.folder.words(c.Code(doc))) })
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
	b.divide()
	b.post()
	b.collect()
	b.spell()
	b.pieces = newPieces(&b.words)
	b.Index.letters, b.Index.initials, b.Index.symbols = b.letters.build(), b.initials.build(), b.symbols.build()
	b.collect()
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
	offheap.Move(m, &x.order, &x.words.from, &x.from, &x.displays.ranks, &x.codes.ranks, &x.spelled.ids, &x.parts.every)
	offheap.Move(m, &c.from, &c.to, &c.count, &c.first, &c.ends, &c.dense)
	offheap.Move(m, &x.letters.lists, &x.initials.lists, &x.symbols.lists)
	offheap.Move(m, &x.displays.keys, &x.codes.keys, &c.sets, &c.heads, (*[]uint64)(&x.pieces), &x.letters.bits, &x.initials.bits, &x.symbols.bits)
	offheap.Move(m, &x.words.text, &x.postings, &x.stems, &x.parts.list)
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

// staticOrder returns the documents as they are ordered within a tier, and how many of them can be chosen.
func staticOrder(c Corpus) (order []uint32, chosen int) {
	keys := make([]uint64, c.Len())
	for doc := range keys {
		rank := c.Rank(uint32(doc))
		keys[doc] = uint64(rank)<<32 | uint64(doc)
		if rank&rankAbstract == 0 {
			chosen++
		}
	}
	slices.Sort(keys)
	order = make([]uint32, len(keys))
	for rank, key := range keys {
		order[rank] = uint32(key)
	}
	return order, chosen
}

// read reads one document.
func (b *builder) read(rank, doc uint32) {
	display, code := b.corpus.Display(doc), b.corpus.Code(doc)
	b.characters(rank, b.folder.withInner(b.folder.words(display)))
	b.signs(rank, display)
	b.signs(rank, code)
	b.display = b.display[:0]
	b.add(rank, 0, display)
	b.display = append(b.display, b.folder.words(display)...)
	line := b.folder.words(code)
	b.joined = appendJoined(b.joined[:0], line)
	if len(b.joined) > 0 {
		b.word(rank, b.joined, true)
	}
	for len(line) > 0 {
		var word []byte
		word, line = nextWord(line)
		b.word(rank, word, true)
	}
	others, foreign := b.corpus.AppendOthers(b.others[:0], doc)
	b.others = others
	b.add(rank, foreign, others...)
	b.write()
}

// write ends the document that is read.
func (b *builder) write() {
	for _, list := range b.lists {
		b.stream.append(list + 1)
	}
	b.stream.append(0)
	b.lists = b.lists[:0]
}

// add adds the words of texts, of which the last ones may have no heads.
func (b *builder) add(rank uint32, foreign int, texts ...[]byte) {
	b.spotter.spots = b.spotter.spots[:0]
	b.text = b.spotter.addAll(b.text[:0], texts, foreign, b.display)
	for _, s := range b.spotter.spots {
		b.word(rank, s.word, s.head)
	}
}

// word adds a word of the document that is read.
func (b *builder) word(rank uint32, word []byte, head bool) {
	list := 2 * b.number(word)
	if !head {
		list++
	}
	b.note(rank, list)
}

// number returns the number of a word.
func (b *builder) number(word []byte) uint32 {
	id := b.vocabulary.id(word)
	if int(id) == len(b.lastSeen) {
		b.lastSeen, b.position = append(b.lastSeen, 0), append(b.position, 0)
	}
	return id
}

// note notes that the document has a word, in a head or not; in a head counts.
func (b *builder) note(rank, list uint32) {
	id := list / 2
	switch {
	case b.lastSeen[id] != rank+1:
		b.lastSeen[id], b.position[id] = rank+1, uint32(len(b.lists))
		b.lists = append(b.lists, list)
	case list%2 == 0:
		b.lists[b.position[id]] = list
	}
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

// post turns the stream into postings, sorted by word. It goes through it twice: to measure each list's bytes, and to
// write them.
func (b *builder) post() {
	sorted := sortByText(len(b.vocabulary.hash), b.vocabulary.text, b.vocabulary.from)
	b.lastSeen, b.position = nil, nil
	last, next := make([]uint32, 2*len(sorted)), make([]uint32, 2*len(sorted)) // by list: its last rank, and where its next one goes
	b.stream.each(func(rank, list uint32) {
		next[list] += varintLength(rank - last[list])
		last[list] = rank
	})
	text := 0
	b.from = make([]uint32, 2*len(sorted)+1)
	at := uint32(0)
	for part := range uint32(2) {
		for i, word := range sorted {
			list := int(part)*len(sorted) + i
			at, next[2*word+part] = at+next[2*word+part], at
			b.from[list+1] = at
		}
	}
	for _, word := range sorted {
		text += len(b.vocabulary.at(word))
	}
	b.list(sorted, text)
	b.vocabulary = vocabulary{}
	b.postings = make([]byte, b.from[2*len(sorted)])
	clear(last)
	b.stream.each(func(rank, list uint32) {
		next[list] += uint32(binary.PutUvarint(b.postings[next[list]:], uint64(rank-last[list])))
		last[list] = rank
	})
	b.stream.release()
}

// list lists the sorted words, which have so many bytes in all.
func (b *builder) list(sorted []uint32, text int) {
	b.words = wordList{text: make([]byte, 0, text), from: make([]uint32, 1, len(sorted)+1)}
	for _, word := range sorted {
		b.words.text = append(b.words.text, b.vocabulary.at(word)...)
		b.words.from = append(b.words.from, uint32(len(b.words.text)))
	}
	for i := 0; i < b.words.len(); i += stride {
		b.words.every = append(b.words.every, prefixKey(b.words.at(i)))
	}
	if b.divided != nil {
		b.Index.parts = newPartList(b.divided, &b.words)
	}
}

func varintLength(n uint32) uint32 { return uint32(bits.Len32(n|1)+6) / 7 }
