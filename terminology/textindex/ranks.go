package textindex

import (
	"hash/maphash"
	"math"
)

// Terms is what [Ranks] looks at.
type Terms interface {
	// Len returns the number of documents.
	Len() int

	// Display returns a document's term.
	Display(doc uint32) []byte

	// Parent returns the document above one; false if there is none.
	Parent(doc uint32) (parent uint32, ok bool)

	// Abstract reports whether a document cannot be chosen.
	Abstract(doc uint32) bool

	// Inactive reports whether a document should no longer be chosen.
	Inactive(doc uint32) bool

	// Weight returns how much a document is used; 0 if that is unknown.
	Weight(doc uint32) float64
}

// The parts of a rank, from the most significant down.
const (
	rankAbstract   = 1 << 31
	rankForeign    = 1 << 30
	weightShift    = 21 // nine bits: the logarithm of the weight, the highest as 0
	rankInactive   = 1 << 20
	variantShift   = 14 // six bits
	generalityBits = 14

	weightMost   = 1<<9 - 1 // of no weight
	weightMask   = weightMost << weightShift
	weightSteps  = 8   // to a power of two
	weightLeast  = -10 // the power of two that is the least weight
	variantsMost = 1<<6 - 1
	steps        = 1 << 14 / 256 // of generality to a nat
	levelSays    = 3             // what a level of the hierarchy counts, in nats
)

// Ranks says in which order documents that match equally well come: those used often before those used seldom, which can
// be chosen before which cannot, active before inactive, plain terms before variants, general terms before special ones.
// The lower number comes first; documents of the same rank come in their order.
//
// Weights that differ by less than a tenth may count as equal, so that chance does not decide; all whole numbers up to 12
// differ. The weight of what cannot be chosen does not count, as nobody has used it.
//
// A variant differs from its parent's term as all its siblings do, and as those of many other parents do: ", initial
// encounter", ", sequela"; right, left. The first of them counts as plain, and each next one as one variant more.
//
// How special a term is, is the information in its words, each ln(documents / documents that have it), outside of
// brackets: unspecified and other say little, because many terms have them. Each level of the hierarchy adds to it.
func Ranks(t Terms) []uint32 {
	r := newRanker(t)
	ranks := make([]uint32, t.Len())
	for doc := range ranks {
		ranks[doc] = r.rank(uint32(doc))
	}
	return ranks
}

// ranker computes ranks.
type ranker struct {
	terms   Terms
	folder  folder
	words   vocabulary
	in      []uint32 // by word: how many documents have it
	last    []uint32 // by word: the last of these, plus one
	depths  []uint8
	variant []uint16
	seed    maphash.Seed
}

func newRanker(t Terms) *ranker {
	r := &ranker{terms: t, words: newVocabulary(), seed: maphash.MakeSeed()}
	for doc := range uint32(t.Len()) {
		r.eachWord(doc, func(word []byte) {
			id := r.words.id(word)
			if int(id) == len(r.in) {
				r.in, r.last = append(r.in, 0), append(r.last, 0)
			}
			if r.last[id] != doc+1 {
				r.last[id] = doc + 1
				r.in[id]++
			}
		})
	}
	r.climb(r.differences())
	return r
}

// eachWord visits the words of a term that are not in brackets.
func (r *ranker) eachWord(doc uint32, visit func(word []byte)) {
	line := r.folder.words(r.terms.Display(doc))
	marks, in := r.folder.marks, place{}
	for at := 0; at < len(line); {
		marks = in.pass(marks, at)
		word, rest := nextWord(line[at:])
		if in.depth == 0 {
			visit(word)
		}
		at = len(line) - len(rest)
	}
}

// differences returns, for each document, what its term has more than its parent's, as a hash; 0 for nothing.
func (r *ranker) differences() []uint64 {
	all := make([]uint64, r.terms.Len())
	var above [][]byte
	var parents folder
	for doc := range all {
		parent, ok := r.terms.Parent(uint32(doc))
		if !ok {
			continue
		}
		above = above[:0]
		for line := parents.words(r.terms.Display(parent)); len(line) > 0; {
			var word []byte
			word, line = nextWord(line)
			above = append(above, word)
		}
		all[doc] = r.difference(uint32(doc), above)
	}
	return all
}

// difference hashes the words of a term without those of its parent's, each of which counts once.
func (r *ranker) difference(doc uint32, above [][]byte) uint64 {
	var h maphash.Hash
	h.SetSeed(r.seed)
	differs := false
	for line := r.folder.words(r.terms.Display(doc)); len(line) > 0; {
		var word []byte
		word, line = nextWord(line)
		if i := indexOf(above, word); i >= 0 {
			above = append(above[:i], above[i+1:]...)
			continue
		}
		h.WriteByte(' ')
		h.Write(word)
		differs = true
	}
	if !differs {
		return 0
	}
	return h.Sum64() | 1
}

func indexOf(words [][]byte, word []byte) int {
	for i := range words {
		if string(words[i]) == string(word) {
			return i
		}
	}
	return -1
}

// fewestRoutine is for how few parents a difference may be routine; in a large code system it must be for a thousandth
// of the documents.
const fewestRoutine = 8

// climb sets depths and variants, from the parents down.
func (r *ranker) climb(differences []uint64) {
	n := r.terms.Len()
	parents := map[uint64]int{}
	for _, d := range differences {
		parents[d]++
	}
	axis := make([]bool, n) // by parent: whether all below it differ routinely
	for doc := range axis {
		axis[doc] = true
	}
	for doc, d := range differences {
		if parent, ok := r.terms.Parent(uint32(doc)); ok && (d == 0 || parents[d] < max(fewestRoutine, n/1000)) {
			axis[parent] = false
		}
	}
	r.depths, r.variant = make([]uint8, n), make([]uint16, n)
	siblings := make([]uint16, n)
	for doc := range uint32(n) { // parents come first; where they do not, they count as roots
		parent, ok := r.terms.Parent(doc)
		if !ok {
			continue
		}
		r.depths[doc] = min(r.depths[parent], math.MaxUint8-1) + 1
		r.variant[doc] = r.variant[parent]
		if axis[parent] {
			r.variant[doc] = min(r.variant[doc]+siblings[parent], variantsMost)
			siblings[parent]++
		}
	}
}

func (r *ranker) rank(doc uint32) uint32 {
	rank := r.generality(doc) | uint32(r.variant[doc])<<variantShift
	if r.terms.Abstract(doc) {
		rank |= rankAbstract
	}
	if r.terms.Inactive(doc) {
		rank |= rankInactive
	}
	return Weighed(rank, r.terms.Weight(doc))
}

// Foreign returns what a rank is for a document that is shown in another language than the one that is asked for: it comes
// after those that can be chosen as well and are shown in that language.
func Foreign(rank uint32) uint32 { return rank | rankForeign }

// Weighed returns what a rank is for a document of another weight.
func Weighed(rank uint32, weight float64) uint32 {
	if rank&rankAbstract != 0 || !(weight > 0) {
		return rank | weightMask
	}
	step := 1 + max(0, min((math.Log2(weight)-weightLeast)*weightSteps, weightMost-1))
	return rank&^weightMask | (weightMost-uint32(step))<<weightShift
}

func (r *ranker) generality(doc uint32) uint32 {
	says := float64(levelSays * int(r.depths[doc]))
	n := float64(r.terms.Len())
	r.eachWord(doc, func(word []byte) { says += math.Log(n / float64(r.in[r.words.id(word)])) })
	return uint32(min(says*steps, 1<<generalityBits-1))
}

// Corpus is the documents to search, known by their positions. The bytes that its methods return must not be changed.
type Corpus interface {
	// Len returns the number of documents.
	Len() int

	// Code returns a document's code.
	Code(doc uint32) []byte

	// Display returns what a person sees of a document: its display, or else its code.
	Display(doc uint32) []byte

	// AppendOthers appends the other texts by which a document is found. The last ones, so many as foreign says, are in
	// another language than the one that is asked for: none of their words counts as in a head.
	AppendOthers(dst [][]byte, doc uint32) (others [][]byte, foreign int)

	// Rank returns where a document comes among others that match equally well, lower being earlier, as [Ranks] says.
	Rank(doc uint32) uint32

	// Language returns the language of the texts (BCP 47), whose inflections and stop words count.
	Language() string
}
