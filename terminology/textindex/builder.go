package textindex

import (
	"bytes"
	"encoding/binary"
	"runtime/debug"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/caddy-fhir/caddy-fhir/terminology/internal/offheap"
)

// builder builds an index. It reads the documents in rank order and records their words. A counting sort turns the records into
// postings.
type builder struct {
	reader                    reader
	words                     *wordStream
	runes                     runeWords
	displayHashes, codeHashes []uint64 // hashes of the display and the code, by rank
}

// LargeCorpusSize is the minimum number of documents for which an index is stored off the heap.
const LargeCorpusSize = 5000

// New returns an index of a corpus. The corpus must not change afterwards.
func New(c Corpus) *Index {
	x := &Index{corpus: c, language: languageOf(c.Language())}
	x.order, x.selectableCount = staticOrder(c)
	b := &builder{reader: newReader(c), words: newWordStream()}
	b.runes.words = b.words
	for rank, doc := range x.order {
		b.read(uint32(rank), doc)
	}
	x.exactTexts = exactTexts{displays: newHashIndex(b.displayHashes), codes: newHashIndex(b.codeHashes)}
	x.collectGarbage()
	if x.language.linkingElements != nil {
		x.compounds = splitCompounds(x.language, &b.words.words)
		b.words = b.words.withParts(b.partLists(x.compounds))
	}
	sorted := b.words.words.sortedIDs()
	for _, id := range sorted {
		x.words.add([]byte(b.words.words.words[id]))
	}
	b.words.words, b.words.lastSeen, b.words.position = vocabulary{}, nil, nil
	x.collectGarbage()
	x.postings = newPostings(b.words, sorted)
	b.words = nil
	x.collectGarbage()
	x.byStem, x.bySpelling = newStemIndex(&x.words, x.language), newSpellingAliases(&x.words, x.language.variantSpelling)
	x.pieces = newSubstringFilter(&x.words)
	x.collectGarbage()
	x.common = newCommonPrefixes(&x.words, &x.postings, len(x.order))
	if len(x.order) >= LargeCorpusSize {
		m := new(offheap.Memory)
		x.moveOffHeap(m)
		offheap.ReleaseWhenCollected(x, m)
		debug.FreeOSMemory()
	}
	return x
}

func (x *Index) moveOffHeap(m *offheap.Memory) {
	c, p, e := &x.common, &x.postings, &x.exactTexts
	offheap.Move(m, &x.order, &x.words.from, &p.from, &e.displays.ranks, &e.codes.ranks)
	offheap.Move(m, &x.byStem.ranks, &x.bySpelling.ids, &x.bySpelling.forms.from)
	offheap.Move(m, &c.from, &c.to, &c.count, &c.first, &c.headCounts, &c.dense)
	offheap.Move(m, &e.displays.hashes, &e.codes.hashes, &x.byStem.hashes, &c.sets, &c.heads, (*[]uint64)(&x.pieces))
	offheap.Move(m, &x.words.text, &p.list, &x.bySpelling.forms.text)
}

// collectGarbage returns memory to the operating system between the steps of building a large index.
func (x *Index) collectGarbage() {
	if len(x.order) >= LargeCorpusSize {
		debug.FreeOSMemory()
	}
}

// staticOrder returns the documents in their order within a tier, and how many of them are selectable.
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

// read records the words of a document.
func (b *builder) read(rank, doc uint32) {
	r := &b.reader
	r.read(doc)
	b.displayHashes, b.codeHashes = append(b.displayHashes, hashText(r.line)), append(b.codeHashes, hashText(r.joined))
	b.runes.addLine(rank, r.line)
	for i, s := range r.tokens() {
		if i < r.displayTokenCount {
			first, _ := utf8.DecodeRune(s.word)
			b.runes.add(rank, kindLetterFirst, first)
		}
		b.words.add(rank, s.word, s.inHead)
	}
	b.runes.addSigns(rank, r.corpus.Display(doc))
	b.runes.addSigns(rank, r.corpus.Code(doc))
	b.words.endDocument()
}

// partLists returns the compound parts of each word, by word number. Parts are encoded as in [wordStream].
func (b *builder) partLists(c *Compounds) [][]uint32 {
	lists := make([][]uint32, len(b.words.words.words))
	for id := range lists {
		word := []byte(b.words.words.words[id])
		for _, p := range c.partsOf(word) {
			list := 2 * b.words.number(word[p.from:p.to])
			if p.from > 0 {
				list++
			}
			lists[id] = append(lists[id], list)
		}
	}
	return lists
}

// reader reads the words of documents. It reuses buffers between calls.
type reader struct {
	corpus            Corpus
	tokenizer         tokenizer // its tokens are the words read last
	displayTokenCount int       // number of tokens that come from the display
	line              []byte    // words of the display
	joined            []byte    // words of the code, without spaces
	text              []byte    // backing bytes of the tokens
	otherTexts        [][]byte  // other searchable texts of the document
}

func newReader(c Corpus) reader {
	return reader{corpus: c, tokenizer: tokenizer{language: languageOf(c.Language())}}
}

// tokens returns the words of the document read last.
func (r *reader) tokens() []token { return r.tokenizer.tokens }

// readDisplay reads only the words in the display of a document.
func (r *reader) readDisplay(doc uint32) {
	s := &r.tokenizer
	s.tokens = s.tokens[:0]
	display := r.corpus.Display(doc)
	r.line = append(r.line[:0], s.folder.words(display)...)
	r.text = s.add(r.text[:0], display)
	r.displayTokenCount = len(s.tokens)
}

// readCode reads the words in the code of a document.
func (r *reader) readCode(doc uint32) (line []byte) {
	line = r.tokenizer.folder.words(r.corpus.Code(doc))
	r.joined = appendJoined(r.joined[:0], line)
	return line
}

// read reads the words in all texts of a document.
func (r *reader) read(doc uint32) {
	r.readDisplay(doc)
	s := &r.tokenizer
	line := r.readCode(doc)
	if len(r.joined) > 0 {
		s.tokens = append(s.tokens, token{word: r.joined, inHead: true})
	}
	start := len(r.text)
	r.text = append(r.text, line...)
	for line := r.text[start:]; len(line) > 0; {
		var word []byte
		word, line = nextWord(line)
		s.tokens = append(s.tokens, token{word: word, inHead: true})
	}
	others, foreign := r.corpus.AppendOtherTexts(r.otherTexts[:0], doc)
	r.otherTexts = others
	r.text = s.addAll(r.text, others, foreign, r.line)
}

// bytesPerStep is the number of text bytes that are examined in one budget step.
const bytesPerStep = 32

// steps returns the cost, in budget steps, of reading the document and examining its words the given number of times.
func (r *reader) steps(times int) int { return 1 + len(r.text)*(1+times)/bytesPerStep }

// releaseCorpus removes the references to the corpus.
func (r *reader) releaseCorpus() {
	r.corpus = nil
	clear(r.otherTexts[:cap(r.otherTexts)])
}

// token is a word of a text and whether it is in the head.
type token struct {
	word []byte

	// inHead reports whether the word is in the head of its text. The head is the part outside brackets before the first comma
	// and the first stop word.
	inHead bool
}

// tokenizer splits texts into tokens. It reuses buffers between calls.
type tokenizer struct {
	folder   textFolder
	language *language
	tokens   []token
}

// addAll adds the words in a document's other texts. display has the words of its display. The last foreign texts have no
// heads.
func (s *tokenizer) addAll(buffer []byte, texts [][]byte, foreign int, display []byte) []byte {
	for i, text := range texts {
		from := len(s.tokens)
		buffer = s.add(buffer, text)
		s.removeAbbreviations(from, display)
		if i >= len(texts)-foreign {
			for at := range s.tokens[from:] {
				s.tokens[from+at].inHead = false
			}
		}
	}
	return buffer
}

// removeAbbreviations removes words that abbreviate a word of the display if the text is a short form of the display. This is
// the case if the text contains two abbreviations, or one abbreviation and a word of the display. The remaining words are no
// longer in a head, because punctuation and stop words differ from those of the display. Otherwise, the prefix diab would rank
// "Type 2 diab w oth comp" before "Type 2 diabetes with other complications".
func (s *tokenizer) removeAbbreviations(from int, display []byte) {
	if len(display) > maxComparedDisplay {
		return
	}
	same, short, kept := 0, 0, s.tokens[:from]
	for _, token := range s.tokens[from:] {
		if in, begins := matchAbbreviation(display, token.word); in {
			same = 1
		} else if begins && len(token.word) > 1 {
			short++
		}
	}
	if short == 0 || same+short < 2 {
		return
	}
	for _, token := range s.tokens[from:] {
		if in, begins := matchAbbreviation(display, token.word); in || !begins {
			token.inHead = false
			kept = append(kept, token)
		}
	}
	s.tokens = kept
}

// maxComparedDisplay is the maximum length of a display, in bytes of its words, for which other texts are compared with it.
const maxComparedDisplay = 256

// matchAbbreviation reports whether word is one of words (found) and whether it is a prefix of one (begins). Words with digits
// are never abbreviations.
func matchAbbreviation(words, word []byte) (found, begins bool) {
	for len(words) > 0 {
		var longer []byte
		longer, words = nextWord(words)
		if bytes.HasPrefix(longer, word) {
			found = found || len(longer) == len(word)
			begins = true
		}
	}
	return found, begins && !bytes.ContainsAny(word, "0123456789")
}

// add appends the words of a text to tokens, including words that begin inside other words and the joined form of hyphenated
// words. The tokens refer to buffer, to which their letters are appended. They are valid as long as buffer is.
func (s *tokenizer) add(buffer, text []byte) []byte {
	line := s.folder.words(text)
	start := len(buffer)
	buffer = append(buffer, line...)
	line = buffer[start:]
	at, chain, inner, marks := scanState{head: true}, 0, s.folder.inner, s.folder.marks
	for from := 0; from < len(line); {
		word, rest := nextWord(line[from:])
		end := len(line) - len(rest)
		marks = at.applyMarks(marks, from)
		if from > 0 && s.language.stopWords[string(word)] {
			at.head = false
		}
		head := at.head && at.depth == 0
		s.tokens = append(s.tokens, token{word, head})
		if !at.joined {
			chain = from
		} else { // beta-2-agonist also adds beta2 and beta2agonist
			s.tokens = append(s.tokens, token{appendJoined(nil, line[chain:end]), head})
		}
		inner = s.addInner(line, from, end, inner, head)
		from = end
	}
	return buffer
}

// addInner adds the words that begin inside a word, and the part before them. Only this part may be in a head.
func (s *tokenizer) addInner(line []byte, from, end int, inner []int, head bool) (rest []int) {
	if len(inner) > 0 && inner[0] < end {
		s.tokens = append(s.tokens, token{line[from+1 : inner[0]], head})
	}
	for ; len(inner) > 0 && inner[0] < end; inner = inner[1:] {
		next := end
		if len(inner) > 1 {
			next = min(end, inner[1])
		}
		s.tokens = append(s.tokens, token{word: line[inner[0]:next]})
	}
	return inner
}

// vocabulary numbers words in the order of their first occurrence.
type vocabulary struct {
	ids   map[string]uint32
	words []string
}

func newVocabulary() vocabulary { return vocabulary{ids: map[string]uint32{}} }

// id returns the number of a word. It adds the word if necessary.
func (v *vocabulary) id(word []byte) uint32 {
	if id, ok := v.ids[string(word)]; ok {
		return id
	}
	id, added := uint32(len(v.words)), string(word)
	v.ids[added], v.words = id, append(v.words, added)
	return id
}

// sortedIDs returns the numbers of all words, sorted alphabetically by word.
func (v *vocabulary) sortedIDs() []uint32 {
	ids := make([]uint32, len(v.words))
	for i := range ids {
		ids[i] = uint32(i)
	}
	slices.SortFunc(ids, func(a, b uint32) int { return strings.Compare(v.words[a], v.words[b]) })
	return ids
}

// wordStream records the distinct words of each document, one document after another. A word is encoded as twice its number,
// plus one if the word is not in a head in this document.
type wordStream struct {
	words    vocabulary
	lastSeen []uint32 // by word: last document that contains the word, plus one
	position []uint32 // by word: index in lists
	lists    []uint32 // encoded words of the current document
	encoded  [][]byte // previous documents: encoded words plus one, as varints, with a final 0; chunked to avoid copying when growing
}

func newWordStream() *wordStream { return &wordStream{words: newVocabulary()} }

// number returns the number of a word. It adds the word if necessary.
func (s *wordStream) number(word []byte) uint32 {
	id := s.words.id(word)
	if int(id) == len(s.lastSeen) {
		s.lastSeen, s.position = append(s.lastSeen, 0), append(s.position, 0)
	}
	return id
}

// add records that a document contains a word. head reports whether the word is in a head.
func (s *wordStream) add(rank uint32, word []byte, head bool) {
	list := 2 * s.number(word)
	if !head {
		list++
	}
	s.record(rank, list)
}

// record records an encoded word. If the document contains the word both in a head and elsewhere, the head takes precedence.
func (s *wordStream) record(rank, list uint32) {
	id := list / 2
	switch {
	case s.lastSeen[id] != rank+1:
		s.lastSeen[id], s.position[id] = rank+1, uint32(len(s.lists))
		s.lists = append(s.lists, list)
	case list%2 == 0:
		s.lists[s.position[id]] = list
	}
}

// endDocument completes the current document.
func (s *wordStream) endDocument() {
	for _, list := range s.lists {
		s.write(list + 1)
	}
	s.write(0)
	s.lists = s.lists[:0]
}

func (s *wordStream) write(n uint32) {
	last := len(s.encoded) - 1
	if last < 0 || cap(s.encoded[last])-len(s.encoded[last]) < binary.MaxVarintLen32 {
		s.encoded, last = append(s.encoded, make([]byte, 0, 1<<min(19, 10+len(s.encoded)))), last+1
	}
	s.encoded[last] = binary.AppendUvarint(s.encoded[last], uint64(n))
}

// each calls visit for each encoded word, with the rank of the document.
func (s *wordStream) each(visit func(rank, list uint32)) {
	rank := uint32(0)
	for _, chunk := range s.encoded {
		for len(chunk) > 0 {
			n, width := binary.Uvarint(chunk)
			if chunk = chunk[width:]; n == 0 {
				rank++
				continue
			}
			visit(rank, uint32(n-1))
		}
	}
}

// withParts returns a stream that also contains the parts of compounds. lists contains the encoded parts by word number. A part
// at the beginning of a compound is in a head if the compound is.
func (s *wordStream) withParts(lists [][]uint32) *wordStream {
	all := &wordStream{words: s.words, lastSeen: s.lastSeen, position: s.position}
	clear(all.lastSeen)
	at := uint32(0)
	s.each(func(rank, list uint32) {
		for ; at < rank; at++ {
			all.endDocument()
		}
		all.record(rank, list)
		for _, part := range lists[list/2] {
			all.record(rank, part|list&1)
		}
	})
	all.endDocument()
	return all
}

// Kinds of special words, which represent single letters and signs in the index. The kind is the first byte of a special word;
// it cannot occur in words of a filter.
const (
	kindLetterAnywhere = iota // a letter or digit, anywhere in the display
	kindLetterFirst           // a letter or digit at the beginning of a word in the display
	kindSignAnywhere          // any other rune, in the display or the code
	runeKindCount

	minWordByte = runeKindCount // minimum first byte of ordinary words
)

// appendRuneWord appends the special word for a letter or sign.
func appendRuneWord(dst []byte, kind byte, r rune) []byte {
	return utf8.AppendRune(append(dst, kind), r)
}

// runeWords adds letters and signs to a word stream as special words (see appendRuneWord).
type runeWords struct {
	words  *wordStream
	ascii  [runeKindCount][utf8.RuneSelf]uint32 // numbers of the special words for ASCII runes, plus one
	buffer []byte
}

func (w *runeWords) add(rank uint32, kind byte, r rune) {
	var id uint32
	if r < utf8.RuneSelf {
		id = w.ascii[kind][r]
	}
	if id == 0 {
		w.buffer = appendRuneWord(w.buffer[:0], kind, r)
		if id = w.words.number(w.buffer) + 1; r < utf8.RuneSelf {
			w.ascii[kind][r] = id
		}
	}
	w.words.record(rank, 2*(id-1)+1)
}

// addLine adds the letters and digits in the words of a display.
func (w *runeWords) addLine(rank uint32, line []byte) {
	for i := 0; i < len(line); {
		r, width := utf8.DecodeRune(line[i:])
		if i += width; r != ' ' {
			w.add(rank, kindLetterAnywhere, r)
		}
	}
}

// addSigns adds the runes in a text that are neither letters nor digits.
func (w *runeWords) addSigns(rank uint32, text []byte) {
	for i := 0; i < len(text); {
		r, width := rune(text[i]), 1
		if r >= utf8.RuneSelf {
			r, width = utf8.DecodeRune(text[i:])
		}
		i += width
		if r != ' ' && !isWordRune(r) {
			w.add(rank, kindSignAnywhere, r)
		}
	}
}
