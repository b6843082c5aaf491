package textindex

import (
	"math/bits"
	"sort"

	"github.com/caddy-fhir/caddy-fhir/terminology/internal/bitset"
)

// commonPrefixes answers filters that are common beginnings: how many documents match, the first of them, and all of
// them if there are too many postings to unite in time: nearly all beginnings of one letter, many of two or three, and
// common words, also as whole words alone. Which documents match depends only on the range of words.
type commonPrefixes struct {
	from, to []uint32 // words; sorted by from, then the longer range first
	count    []uint32 // number of documents
	first    []uint32 // the first documents, firsts for each range: those that have a word in a head, then the others
	ends     []uint32 // how many of these have one in a head, for each range
	dense    []uint32 // index in sets plus one; 0 if none
	sets     []uint64 // one bitset after the other
	heads    []uint64 // the same, of those that have a word in a head
}

const (
	// firsts is how many of the first documents are kept.
	firsts = 64

	// manyPostings is from how many bytes of postings on the first documents are kept. Fewer take a microsecond or two.
	manyPostings = 1024
)

// find returns the position of a range of words.
func (c *commonPrefixes) find(from, to int) (i int, ok bool) {
	i = sort.Search(len(c.from), func(i int) bool {
		return c.from[i] > uint32(from) || c.from[i] == uint32(from) && c.to[i] <= uint32(to)
	})
	return i, i < len(c.from) && c.from[i] == uint32(from) && c.to[i] == uint32(to)
}

// set returns the documents, of n in all, that have a word of a range, if they are kept.
func (c *commonPrefixes) set(from, to, n int) (rankSet, bool) {
	i, ok := c.find(from, to)
	if !ok || c.dense[i] == 0 {
		return rankSet{}, false
	}
	words, at := (n+63)/64, int(c.dense[i])-1
	return rankSet{bits: c.sets[at*words : (at+1)*words], size: int(c.count[i])}, true
}

// headSet is set for the documents that have a word in a head.
func (c *commonPrefixes) headSet(from, to, n int) (rankSet, bool) {
	i, ok := c.find(from, to)
	if !ok || c.dense[i] == 0 {
		return rankSet{}, false
	}
	words, at := (n+63)/64, int(c.dense[i])-1
	return rankSet{bits: c.heads[at*words : (at+1)*words]}, true
}

// firstOf returns the first documents of a range: those that have a word in a head, and the first others if these are
// few.
func (c *commonPrefixes) firstOf(i int) (heads, tails []uint32) {
	first := c.first[i*firsts : i*firsts+min(int(c.count[i]), firsts)]
	return first[:c.ends[i]], first[c.ends[i]:]
}

func (c *commonPrefixes) bytes() int {
	return 4*(len(c.from)+len(c.to)+len(c.count)+len(c.first)+len(c.ends)+len(c.dense)) + 8*(len(c.sets)+len(c.heads))
}

// findCommon computes commonPrefixes. It bounds the cost of a filter: a beginning has its set here, or few postings.
func findCommon(words *wordList, p *postings, n int) commonPrefixes {
	b := commonBuilder{words: words, postings: p, n: n, most: uint32(max(4096, n/16))}
	ranges, dense := 0, 0
	b.group(0, words.len(), 0, func(from, to int) {
		ranges++
		if b.isDense(from, to) {
			dense++
		}
	})
	b.first, b.sets = make([]uint32, 0, ranges*firsts), make([]uint64, 0, dense*len(bitset.New(n)))
	b.heads = make([]uint64, 0, cap(b.sets))
	b.group(0, words.len(), 0, b.add)
	return b.commonPrefixes
}

// noRank fills up the first documents of a range that has fewer.
const noRank = ^uint32(0)

type commonBuilder struct {
	commonPrefixes
	words    *wordList
	postings *postings
	n        int    // documents
	most     uint32 // up to how many bytes postings are united when searched

	set, part rankSet
}

// group visits a range of words that share their first depth bytes, and the ranges within it, in the order of
// commonPrefixes. It descends only into ranges with many postings, which are few; it recurses at most as deep as the
// longest common word.
func (b *commonBuilder) group(from, to, depth int, visit func(from, to int)) {
	words := b.words
	if b.postings.size(from, to) <= manyPostings {
		return
	}
	// A range within it that is as long is the same one.
	if whole := depth < len(words.at(from)) && words.after(from, words.at(from)[:depth+1]) >= to; depth > 0 && !whole {
		visit(from, to)
	}
	for at := from; at < to; {
		word := words.at(at)
		next := at + 1
		switch {
		case depth < len(word):
			next = min(words.after(at, word[:depth+1]), to)
			b.group(at, next, depth+1, visit)
		case to-from > 1 && b.isDense(at, next): // the word itself, which others continue
			visit(at, next)
		}
		at = next
	}
}

// isDense reports whether a range of words has so many postings that its set is kept.
func (b *commonBuilder) isDense(from, to int) bool {
	return b.postings.size(from, to) > b.most
}

// add adds a range of words.
func (b *commonBuilder) add(from, to int) {
	b.part.empty(b.n)
	b.postings.unite(&b.part, from, to)
	b.set.empty(b.n)
	b.set.union(&b.part)
	b.postings.uniteTails(&b.set, from, to)
	b.from, b.to = append(b.from, uint32(from)), append(b.to, uint32(to))
	b.count = append(b.count, uint32(b.set.count()))
	b.addFirst()
	if !b.isDense(from, to) {
		b.dense = append(b.dense, 0)
		return
	}
	b.sets, b.heads = append(b.sets, b.set.bits...), append(b.heads, b.part.bits...)
	b.dense = append(b.dense, uint32(len(b.sets)/len(b.set.bits)))
}

// addFirst adds the first documents of the set, those of the part before others.
func (b *commonBuilder) addFirst() {
	start := len(b.first)
	b.first = appendFirst(b.first, start+firsts, &b.part, nil)
	b.ends = append(b.ends, uint32(len(b.first)-start))
	b.first = appendFirst(b.first, start+firsts, &b.set, b.part.bits)
	for len(b.first) < start+firsts {
		b.first = append(b.first, noRank)
	}
}

// appendFirst appends the first ranks of a set that are not in others, up to a length.
func appendFirst(dst []uint32, length int, set *rankSet, others bitset.Set) []uint32 {
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
