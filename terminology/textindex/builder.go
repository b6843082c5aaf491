package textindex

import (
	"runtime/debug"
	"slices"
	"unicode/utf8"

	"github.com/caddy-fhir/caddy-fhir/terminology/internal/offheap"
)

// builder builds an index. It goes through the documents by rank and notes their words; a counting sort turns these into
// postings.
type builder struct {
	reader         reader
	words          *wordStream
	runes          runeWords
	displays, code []uint64 // by rank: the hash of the text
}

// Large is from how many documents on an index is kept off the heap.
const Large = 5000

// New builds the index of a corpus, which must not change afterwards.
func New(c Corpus) *Index {
	x := &Index{corpus: c, language: languageOf(c.Language())}
	x.order, x.chosen = staticOrder(c)
	b := &builder{reader: newReader(c), words: newWordStream()}
	b.runes.words = b.words
	for rank, doc := range x.order {
		b.read(uint32(rank), doc)
	}
	x.whole = wholeTexts{displays: newExact(b.displays), codes: newExact(b.code)}
	x.collect()
	if x.language.elements != nil {
		x.divided = divideWords(x.language, &b.words.words)
		b.words = b.words.withParts(b.partLists(x.divided))
	}
	sorted := b.words.words.sorted()
	for _, id := range sorted {
		x.words.add([]byte(b.words.words.words[id]))
	}
	b.words.words, b.words.lastSeen, b.words.position = vocabulary{}, nil, nil
	x.collect()
	x.postings = newPostings(b.words, sorted)
	b.words = nil
	x.collect()
	x.stems, x.spelled = newStems(&x.words, x.language), newAliases(&x.words, x.language.otherSpelling)
	x.pieces = newPieces(&x.words)
	x.collect()
	x.common = findCommon(&x.words, &x.postings, len(x.order))
	if len(x.order) >= Large {
		m := new(offheap.Memory)
		x.settle(m)
		offheap.Own(x, m)
		debug.FreeOSMemory()
	}
	return x
}

func (x *Index) settle(m *offheap.Memory) {
	c, p, e := &x.common, &x.postings, &x.whole
	offheap.Move(m, &x.order, &x.words.from, &p.from, &e.displays.ranks, &e.codes.ranks)
	offheap.Move(m, &x.stems.ranks, &x.spelled.ids, &x.spelled.forms.from)
	offheap.Move(m, &c.from, &c.to, &c.count, &c.first, &c.ends, &c.dense)
	offheap.Move(m, &e.displays.hashes, &e.codes.hashes, &x.stems.hashes, &c.sets, &c.heads, (*[]uint64)(&x.pieces))
	offheap.Move(m, &x.words.text, &p.list, &x.spelled.forms.text)
}

// collect frees memory that a large index no longer needs while it is built.
func (x *Index) collect() {
	if len(x.order) >= Large {
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
	r := &b.reader
	r.read(doc)
	b.displays, b.code = append(b.displays, exactHash(r.line)), append(b.code, exactHash(r.joined))
	b.runes.addLine(rank, r.line)
	for i, s := range r.spots() {
		if i < r.shown {
			first, _ := utf8.DecodeRune(s.word)
			b.runes.add(rank, letterFirst, first)
		}
		b.words.add(rank, s.word, s.head)
	}
	b.runes.addSigns(rank, r.corpus.Display(doc))
	b.runes.addSigns(rank, r.corpus.Code(doc))
	b.words.end()
}

// partLists returns the parts of each word, as [wordStream] has them.
func (b *builder) partLists(c *Compounds) [][]uint32 {
	lists := make([][]uint32, len(b.words.words.words))
	for id := range lists {
		word := []byte(b.words.words.words[id])
		for _, p := range c.of(word) {
			list := 2 * b.words.number(word[p.from:p.to])
			if p.from > 0 {
				list++
			}
			lists[id] = append(lists[id], list)
		}
	}
	return lists
}
