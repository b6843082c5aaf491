package textindex

import (
	"cmp"
	"encoding/binary"
	"hash/maphash"
	"math/bits"
	"slices"
	"sort"

	"github.com/caddy-fhir/caddy-fhir/terminology/internal/bitset"
)

// postings contains the ranks of the documents that contain each word, with separate lists for heads and for other positions.
// List i is list[from[i]:from[i+1]]. It contains ascending ranks as varints: the first rank, then differences. With n words,
// word i has list i for heads and list n+i for other positions.
type postings struct {
	words int
	from  []uint32
	list  []byte
}

// newPostings returns the postings of a stream, sorted by word: word sorted[i] of the stream becomes word i. It reads the
// stream twice, first to measure the lists, then to write them.
func newPostings(s *wordStream, sorted []uint32) postings {
	last, next := make([]uint32, 2*len(sorted)), make([]uint32, 2*len(sorted)) // by list: last rank, offset of the next posting
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

// hasTails reports whether any document contains one of the words outside a head.
func (p *postings) hasTails(words []span) bool {
	return slices.ContainsFunc(words, func(s span) bool { return p.from[p.words+s.from] < p.from[p.words+s.to] })
}

// documentCount returns the number of documents that contain a word.
func (p *postings) documentCount(word int) (n int) {
	for _, list := range []int{word, p.words + word} {
		for _, b := range p.list[p.from[list]:p.from[list+1]] {
			if b < 0x80 {
				n++
			}
		}
	}
	return n
}

// size returns the size of the postings for the words in [from, to), in bytes.
func (p *postings) size(from, to int) uint32 {
	return p.from[to] - p.from[from] + p.from[p.words+to] - p.from[p.words+from]
}

// uniteFirst adds the first n ranks in a list to dst.
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

// uniteTails adds the documents that contain any word in [from, to) outside a head.
func (p *postings) uniteTails(dst *rankSet, from, to int) {
	p.unite(dst, p.words+from, p.words+to)
}

// unite adds the ranks in the lists from to to-1.
func (p *postings) unite(dst *rankSet, from, to int) {
	if from == to {
		return
	}
	bits, used := dst.bits, dst.usedWords
	postings := p.list[:p.from[to]]
	at := p.from[from]
	if len(postings)-int(at) > len(bits) { // tracking the used words would take longer than scanning all of them
		dst.markAllUsed()
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

// commonPrefixes contains precomputed results for frequent prefixes: the number of matching documents, the first of them and,
// if uniting the postings would take too long, all of them. Nearly all prefixes of one letter are frequent, as are many of two
// or three letters and common words (also as whole words). The results depend only on the range of words.
type commonPrefixes struct {
	from, to   []uint32 // ranges of words, sorted by from; of those with the same from, longer ranges come first
	count      []uint32 // by range: number of documents
	first      []uint32 // firstsPerRange documents per range: first those with a word in a head, then others
	headCounts []uint32 // by range: how many of the first documents have a word in a head
	dense      []uint32 // by range: index of the bitset in sets and heads, plus one; 0 if none is stored
	sets       []uint64 // concatenated bitsets of all matching documents
	heads      []uint64 // concatenated bitsets of the documents that have a word in a head
}

const (
	// firstsPerRange is the number of first documents stored per range.
	firstsPerRange = 64

	// minPostingsSize is the minimum size, in bytes, of postings for which the first documents are stored.
	minPostingsSize = 1024
)

// find returns the index of the range [from, to).
func (c *commonPrefixes) find(from, to int) (i int, ok bool) {
	i = sort.Search(len(c.from), func(i int) bool {
		return c.from[i] > uint32(from) || c.from[i] == uint32(from) && c.to[i] <= uint32(to)
	})
	return i, i < len(c.from) && c.from[i] == uint32(from) && c.to[i] == uint32(to)
}

// set returns the stored set of documents that contain a word in [from, to). n is the number of documents in the index.
func (c *commonPrefixes) set(from, to, n int) (rankSet, bool) {
	i, ok := c.find(from, to)
	if !ok || c.dense[i] == 0 {
		return rankSet{}, false
	}
	words, at := (n+63)/64, int(c.dense[i])-1
	return rankSet{bits: c.sets[at*words : (at+1)*words], size: int(c.count[i])}, true
}

// headSet is like [commonPrefixes.set], but for documents that have a word in a head.
func (c *commonPrefixes) headSet(from, to, n int) (rankSet, bool) {
	i, ok := c.find(from, to)
	if !ok || c.dense[i] == 0 {
		return rankSet{}, false
	}
	words, at := (n+63)/64, int(c.dense[i])-1
	return rankSet{bits: c.heads[at*words : (at+1)*words]}, true
}

// firstOf returns the first documents of the i-th range: those with a word in a head (heads), then others (tails).
func (c *commonPrefixes) firstOf(i int) (heads, tails []uint32) {
	first := c.first[i*firstsPerRange : i*firstsPerRange+min(int(c.count[i]), firstsPerRange)]
	return first[:c.headCounts[i]], first[c.headCounts[i]:]
}

func (c *commonPrefixes) bytes() int {
	return 4*(len(c.from)+len(c.to)+len(c.count)+len(c.first)+len(c.headCounts)+len(c.dense)) + 8*(len(c.sets)+len(c.heads))
}

// newCommonPrefixes computes results so that each prefix has either a stored set or few postings.
func newCommonPrefixes(words *wordList, p *postings, n int) commonPrefixes {
	b := commonBuilder{words: words, postings: p, n: n, maxUnionSize: uint32(max(4096, n/16))}
	ranges, dense := 0, 0
	b.visitPrefixes(0, words.len(), 0, func(from, to int) {
		ranges++
		if b.isDense(from, to) {
			dense++
		}
	})
	b.first, b.sets = make([]uint32, 0, ranges*firstsPerRange), make([]uint64, 0, dense*len(bitset.New(n)))
	b.heads = make([]uint64, 0, cap(b.sets))
	b.visitPrefixes(0, words.len(), 0, b.add)
	return b.commonPrefixes
}

// noRank fills the first documents of a range that has fewer than firstsPerRange.
const noRank = ^uint32(0)

type commonBuilder struct {
	commonPrefixes
	words        *wordList
	postings     *postings
	n            int    // number of documents
	maxUnionSize uint32 // maximum size, in bytes, of the postings that a search unites

	set, part rankSet
}

// visitPrefixes visits a range of words with the same first depth bytes, and its subranges, in the order of
// commonPrefixes. It only descends into the few ranges with many postings, so the recursion depth is at most the length of the
// longest common word.
func (b *commonBuilder) visitPrefixes(from, to, depth int, visit func(from, to int)) {
	words := b.words
	if b.postings.size(from, to) <= minPostingsSize {
		return
	}
	// A subrange that contains all words is visited instead of the range.
	if whole := depth < len(words.at(from)) && words.prefixEnd(from, words.at(from)[:depth+1]) >= to; depth > 0 && !whole {
		visit(from, to)
	}
	for at := from; at < to; {
		word := words.at(at)
		next := at + 1
		switch {
		case depth < len(word):
			next = min(words.prefixEnd(at, word[:depth+1]), to)
			b.visitPrefixes(at, next, depth+1, visit)
		case to-from > 1 && b.isDense(at, next): // a word that is also a prefix of other words
			visit(at, next)
		}
		at = next
	}
}

// isDense reports whether the postings of a range are so large that its sets must be stored.
func (b *commonBuilder) isDense(from, to int) bool {
	return b.postings.size(from, to) > b.maxUnionSize
}

// add stores the results for a range of words.
func (b *commonBuilder) add(from, to int) {
	b.part.reset(b.n)
	b.postings.unite(&b.part, from, to)
	b.set.reset(b.n)
	b.set.union(&b.part)
	b.postings.uniteTails(&b.set, from, to)
	b.from, b.to = append(b.from, uint32(from)), append(b.to, uint32(to))
	b.count = append(b.count, uint32(b.set.count()))
	b.addFirstDocuments()
	if !b.isDense(from, to) {
		b.dense = append(b.dense, 0)
		return
	}
	b.sets, b.heads = append(b.sets, b.set.bits...), append(b.heads, b.part.bits...)
	b.dense = append(b.dense, uint32(len(b.sets)/len(b.set.bits)))
}

// addFirstDocuments adds the first documents of the range to first: those in part, then others in set.
func (b *commonBuilder) addFirstDocuments() {
	start := len(b.first)
	b.first = appendFirstDocuments(b.first, start+firstsPerRange, &b.part, nil)
	b.headCounts = append(b.headCounts, uint32(len(b.first)-start))
	b.first = appendFirstDocuments(b.first, start+firstsPerRange, &b.set, b.part.bits)
	for len(b.first) < start+firstsPerRange {
		b.first = append(b.first, noRank)
	}
}

// appendFirstDocuments appends the first ranks in set that are not in others, until dst has the given length.
func appendFirstDocuments(dst []uint32, length int, set *rankSet, others bitset.Set) []uint32 {
	for i, word := range set.each {
		if others != nil {
			word &^= others[i]
		}
		for ; word != 0; word &= word - 1 {
			if len(dst) == length {
				return dst
			}
			dst = append(dst, uint32(i*64+bits.TrailingZeros64(word)))
		}
	}
	return dst
}

// hashIndex finds documents by their entire text, or words by their stem, using hashes. A hash collision is less likely than a
// memory error. Searching for a hash needs half as many memory accesses as searching for a text.
type hashIndex struct {
	hashes, samples []uint64 // sorted hashes, and every sampleStride-th of them
	ranks           []uint32 // by hash: rank of the document or number of the word
}

var hashSeed = maphash.MakeSeed()

func hashText(text []byte) uint64 { return maphash.Bytes(hashSeed, text) }

// newHashIndex returns an index of the hashes, which are in rank order. Hash 0 means that there is no text.
func newHashIndex(hashes []uint64) (e hashIndex) {
	for rank, hash := range hashes {
		if hash != 0 {
			e.ranks = append(e.ranks, uint32(rank))
		}
	}
	slices.SortFunc(e.ranks, func(a, b uint32) int { return cmp.Or(cmp.Compare(hashes[a], hashes[b]), cmp.Compare(a, b)) })
	e.ranks = slices.Clip(e.ranks)
	e.hashes = make([]uint64, len(e.ranks))
	for i, rank := range e.ranks {
		if e.hashes[i] = hashes[rank]; i%sampleStride == 0 {
			e.samples = append(e.samples, hashes[rank])
		}
	}
	return e
}

// newStemIndex returns an index that finds words by their stem.
func newStemIndex(words *wordList, l *language) hashIndex {
	hashes := make([]uint64, words.len())
	for id := range hashes {
		if stem := l.stem(words.at(id)); stem != nil {
			hashes[id] = hashText(stem)
		}
	}
	return newHashIndex(hashes)
}

// find returns the ranks of documents with the given text, or the numbers of words with the given stem.
func (e *hashIndex) find(text []byte) []uint32 {
	hash := hashText(text)
	from := sampledSearch(e.samples, len(e.hashes), hash, func(i int) bool { return e.hashes[i] >= hash })
	return e.ranks[from:][:exponentialSearch(len(e.ranks)-from, func(i int) bool { return e.hashes[from+i] != hash })]
}

func (e *hashIndex) bytes() int { return 8*(len(e.hashes)+len(e.samples)) + 4*len(e.ranks) }
