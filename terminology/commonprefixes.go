package terminology

// findCommon computes the sets of the beginnings that many words share. What a filter then costs is
// bounded: a beginning has its set here, or few postings.
func findCommon(x *index) commonPrefixes {
	b := commonBuilder{index: x, most: uint32(max(4096, len(x.order)/8))}
	b.group(0, x.words.len(), 0)
	return b.commonPrefixes
}

// commonBuilder computes commonPrefixes.
type commonBuilder struct {
	commonPrefixes
	index *index
	most  uint32 // how many bytes of postings are gone through on the spot
}

// group adds the set of a range of words that have their first depth bytes in common, and those of the
// ranges within it. The order is the one that commonPrefixes has. Only ranges with many postings are gone
// into, of which there are few; the depth of the recursion is that of the longest common word at most.
func (b *commonBuilder) group(from, to, depth int) {
	x := b.index
	if x.from[to]-x.from[from] <= b.most {
		return
	}
	last := len(b.from) - 1
	if depth > 0 && (last < 0 || b.from[last] != uint32(from) || b.to[last] != uint32(to)) {
		b.add(from, to)
	}
	for at := from; at < to; {
		word := x.words.at(at)
		next := at + 1
		if depth < len(word) {
			next = min(x.words.after(at, word[:depth+1]), to)
			b.group(at, next, depth+1)
		}
		at = next
	}
}

// add adds the set of a range of words.
func (b *commonBuilder) add(from, to int) {
	set := newBitset(len(b.index.order))
	b.index.unite(set, from, to)
	b.from, b.to = append(b.from, uint32(from)), append(b.to, uint32(to))
	b.sets = append(b.sets, set...)
}
