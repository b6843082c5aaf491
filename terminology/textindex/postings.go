package textindex

import (
	"encoding/binary"
	"math/bits"
	"slices"
)

// postings are the ranks of the documents that have each word, in a head and elsewhere. Those of list i are in
// list[from[i]:from[i+1]], ascending, as varints: the first, then the differences. Of n words, word i has list i in heads,
// and n+i elsewhere.
type postings struct {
	words int
	from  []uint32
	list  []byte
}

// newPostings sorts the words of documents, as a stream has them, by word: the one that is first in sorted is word 0. It
// goes through them twice: to measure each list's bytes, and to write them.
func newPostings(s *wordStream, sorted []uint32) postings {
	last, next := make([]uint32, 2*len(sorted)), make([]uint32, 2*len(sorted)) // by list: its last rank, and where its next one goes
	s.each(func(rank, list uint32) {
		next[list] += varintLength(rank - last[list])
		last[list] = rank
	})
	p := postings{words: len(sorted), from: make([]uint32, 2*len(sorted)+1)}
	at := uint32(0)
	for part := range uint32(2) {
		for i, word := range sorted {
			at, next[2*word+part] = at+next[2*word+part], at
			p.from[int(part)*len(sorted)+i+1] = at
		}
	}
	p.list = make([]byte, at)
	clear(last)
	s.each(func(rank, list uint32) {
		next[list] += uint32(binary.PutUvarint(p.list[next[list]:], uint64(rank-last[list])))
		last[list] = rank
	})
	return p
}

func varintLength(n uint32) uint32 { return uint32(bits.Len32(n|1)+6) / 7 }

// hasTails reports whether documents have one of some words elsewhere than in a head.
func (p *postings) hasTails(words []span) bool {
	return slices.ContainsFunc(words, func(s span) bool { return p.from[p.words+s.from] < p.from[p.words+s.to] })
}

// documents returns how many documents have a word.
func (p *postings) documents(word int) (n int) {
	for _, list := range []int{word, p.words + word} {
		for _, b := range p.list[p.from[list]:p.from[list+1]] {
			if b < 0x80 {
				n++
			}
		}
	}
	return n
}

// size returns how many bytes of postings a range of words has.
func (p *postings) size(from, to int) uint32 {
	return p.from[to] - p.from[from] + p.from[p.words+to] - p.from[p.words+from]
}

// uniteFirst adds the first n ranks of a list.
func (p *postings) uniteFirst(dst *rankSet, list, n int) {
	rank := uint32(0)
	ranks := p.list[p.from[list]:p.from[list+1]]
	for ; n > 0 && len(ranks) > 0; n-- {
		more, width := binary.Uvarint(ranks)
		ranks = ranks[width:]
		rank += uint32(more)
		dst.add(rank)
	}
}

// uniteTails adds the documents that have one of a range of words elsewhere than in a head.
func (p *postings) uniteTails(dst *rankSet, from, to int) {
	p.unite(dst, p.words+from, p.words+to)
}

// unite adds the ranks of a range of lists.
func (p *postings) unite(dst *rankSet, from, to int) {
	if from == to {
		return
	}
	bits, used := dst.bits, dst.used
	postings := p.list[:p.from[to]]
	at := p.from[from]
	if len(postings)-int(at) > len(bits) { // it takes longer to note what is used than to go through all
		dst.useAll()
		used = nil
	}
	for _, end := range p.from[from+1 : to+1] {
		rank := uint32(0)
		for at < end {
			more := uint32(postings[at])
			if at++; more >= 0x80 {
				more &= 0x7f
				for shift := 7; ; shift += 7 {
					c := postings[at]
					at++
					more |= uint32(c&0x7f) << shift
					if c < 0x80 {
						break
					}
				}
			}
			rank += more
			bits.Add(rank)
			if used != nil {
				used.Add(rank / 64)
			}
		}
	}
}
