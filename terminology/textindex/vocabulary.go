package textindex

import (
	"encoding/binary"
	"slices"
	"strings"
)

// vocabulary numbers words in the order they are first seen.
type vocabulary struct {
	ids   map[string]uint32
	words []string
}

func newVocabulary() vocabulary { return vocabulary{ids: map[string]uint32{}} }

// id returns the number of a word, which it adds if need be.
func (v *vocabulary) id(word []byte) uint32 {
	if id, ok := v.ids[string(word)]; ok {
		return id
	}
	id, added := uint32(len(v.words)), string(word)
	v.ids[added], v.words = id, append(v.words, added)
	return id
}

// sorted returns the numbers of the words in the order of the alphabet.
func (v *vocabulary) sorted() []uint32 {
	ids := make([]uint32, len(v.words))
	for i := range ids {
		ids[i] = uint32(i)
	}
	slices.SortFunc(ids, func(a, b uint32) int { return strings.Compare(v.words[a], v.words[b]) })
	return ids
}

// wordStream is the words of one document after the other, each once. A word is known by twice its number, plus one if the
// document does not have it in a head.
type wordStream struct {
	words    vocabulary
	lastSeen []uint32 // by word: the last document it was seen in, plus one
	position []uint32 // by word: where in lists that document has it
	lists    []uint32 // of the document that is noted
	written  [][]byte // of those before, as varints: each plus one, and 0 at the end of a document; in chunks, to grow without copying
}

func newWordStream() *wordStream { return &wordStream{words: newVocabulary()} }

// number returns the number of a word.
func (s *wordStream) number(word []byte) uint32 {
	id := s.words.id(word)
	if int(id) == len(s.lastSeen) {
		s.lastSeen, s.position = append(s.lastSeen, 0), append(s.position, 0)
	}
	return id
}

// add notes that a document has a word, in a head or not.
func (s *wordStream) add(rank uint32, word []byte, head bool) {
	list := 2 * s.number(word)
	if !head {
		list++
	}
	s.note(rank, list)
}

// note is add for the word as the stream has it; in a head counts.
func (s *wordStream) note(rank, list uint32) {
	id := list / 2
	switch {
	case s.lastSeen[id] != rank+1:
		s.lastSeen[id], s.position[id] = rank+1, uint32(len(s.lists))
		s.lists = append(s.lists, list)
	case list%2 == 0:
		s.lists[s.position[id]] = list
	}
}

// end ends a document.
func (s *wordStream) end() {
	for _, list := range s.lists {
		s.write(list + 1)
	}
	s.write(0)
	s.lists = s.lists[:0]
}

func (s *wordStream) write(n uint32) {
	last := len(s.written) - 1
	if last < 0 || cap(s.written[last])-len(s.written[last]) < binary.MaxVarintLen32 {
		s.written, last = append(s.written, make([]byte, 0, 1<<min(19, 10+len(s.written)))), last+1
	}
	s.written[last] = binary.AppendUvarint(s.written[last], uint64(n))
}

// each calls visit with each word and the rank of its document.
func (s *wordStream) each(visit func(rank, list uint32)) {
	rank := uint32(0)
	for _, chunk := range s.written {
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

// withParts returns a stream with the parts of compounds as well: lists has them by word. What begins a compound is in a
// head if that is.
func (s *wordStream) withParts(lists [][]uint32) *wordStream {
	all := &wordStream{words: s.words, lastSeen: s.lastSeen, position: s.position}
	clear(all.lastSeen)
	at := uint32(0)
	s.each(func(rank, list uint32) {
		for ; at < rank; at++ {
			all.end()
		}
		all.note(rank, list)
		for _, part := range lists[list/2] {
			all.note(rank, part|list&1)
		}
	})
	all.end()
	return all
}
