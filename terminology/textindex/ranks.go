package textindex

import (
	"hash/maphash"
	"math"
)

// Terms provides the documents for [Ranks].
type Terms interface {
	// Len returns the number of documents.
	Len() int

	// Display returns the term that a document displays.
	Display(doc uint32) []byte

	// Parent returns the parent of a document. ok is false for a root.
	Parent(doc uint32) (parent uint32, ok bool)

	// Abstract reports whether users cannot select a document.
	Abstract(doc uint32) bool

	// Inactive reports whether users should no longer select a document.
	Inactive(doc uint32) bool

	// Weight returns the usage weight of a document; 0 means unknown.
	Weight(doc uint32) float64
}

// Parts of a rank, with the most significant first.
const (
	rankAbstract   = 1 << 31
	rankForeign    = 1 << 30
	weightShift    = 21 // 9 bits: inverted logarithm of the weight; 0 is the highest weight
	rankInactive   = 1 << 20
	variantShift   = 14 // 6 bits
	generalityBits = 14

	maxWeightPart     = 1<<9 - 1 // value for an unknown weight
	weightMask        = maxWeightPart << weightShift
	weightSteps       = 8   // steps per power of two
	minWeightExponent = -10 // exponent (base 2) of the lowest weight
	maxVariants       = 1<<6 - 1
	generalitySteps   = 1 << 14 / 256 // steps of generality per nat
	natsPerLevel      = 3             // nats per level of the hierarchy
)

// Ranks returns the rank of each document among equally good matches. Lower ranks come first. The criteria are, in this order:
// selectable before abstract, usage, active before inactive, plain before variant, general before specific. Documents with
// equal ranks stay in their original order.
//
// Weights that differ by less than a tenth may have the same rank, to reduce noise. Whole numbers up to 12 all have different
// ranks. Weights of abstract documents are ignored.
//
// A variant differs from its parent's term in the same way as all its siblings and the children of many other parents, for
// example ", initial encounter", ", sequela"; right, left. The first variant is treated as plain.
//
// The specificity of a term is the sum of ln(documents / documents with the word) over all its words outside brackets, plus a
// constant for each level of the hierarchy. Frequent words add little.
func Ranks(t Terms) []uint32 {
	r := newRanker(t)
	ranks := make([]uint32, t.Len())
	for doc := range ranks {
		ranks[doc] = r.rank(uint32(doc))
	}
	return ranks
}

// ranker computes ranks from terms and their hierarchy.
type ranker struct {
	terms          Terms
	folder         textFolder
	words          vocabulary
	documentCounts []uint32 // by word: number of documents that contain it
	lastDocuments  []uint32 // by word: last document that contains it, plus one
	depths         []uint8
	variant        []uint16
	seed           maphash.Seed
}

func newRanker(t Terms) *ranker {
	r := &ranker{terms: t, words: newVocabulary(), seed: maphash.MakeSeed()}
	for doc := range uint32(t.Len()) {
		r.eachWord(doc, func(word []byte) {
			id := r.words.id(word)
			if int(id) == len(r.documentCounts) {
				r.documentCounts, r.lastDocuments = append(r.documentCounts, 0), append(r.lastDocuments, 0)
			}
			if r.lastDocuments[id] != doc+1 {
				r.lastDocuments[id] = doc + 1
				r.documentCounts[id]++
			}
		})
	}
	r.computeVariants(r.hashDifferences())
	return r
}

// eachWord calls visit with each word of a term outside brackets.
func (r *ranker) eachWord(doc uint32, visit func(word []byte)) {
	line := r.folder.words(r.terms.Display(doc))
	marks, in := r.folder.marks, scanState{}
	for at := 0; at < len(line); {
		marks = in.applyMarks(marks, at)
		word, rest := nextWord(line[at:])
		if in.depth == 0 {
			visit(word)
		}
		at = len(line) - len(rest)
	}
}

// hashDifferences returns, by document, a hash of the words that its term adds to its parent's term, or 0 if it adds none.
func (r *ranker) hashDifferences() []uint64 {
	all := make([]uint64, r.terms.Len())
	var above [][]byte
	var parents textFolder
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
		all[doc] = r.hashDifference(uint32(doc), above)
	}
	return all
}

// hashDifference hashes the words of a term that are not in above, the words of its parent's term. It removes each word only
// once.
func (r *ranker) hashDifference(doc uint32, above [][]byte) uint64 {
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

// minRoutineParents is the minimum number of parents with a child that differs in the same way for this difference to be
// routine. In large code systems, the minimum is a thousandth of the documents.
const minRoutineParents = 8

// computeVariants computes the depths and variants of all documents, starting at the roots.
func (r *ranker) computeVariants(differences []uint64) {
	n := r.terms.Len()
	parents := map[uint64]int{}
	for _, d := range differences {
		parents[d]++
	}
	axis := make([]bool, n) // by parent: all its children differ routinely
	for doc := range axis {
		axis[doc] = true
	}
	for doc, d := range differences {
		if parent, ok := r.terms.Parent(uint32(doc)); ok && (d == 0 || parents[d] < max(minRoutineParents, n/1000)) {
			axis[parent] = false
		}
	}
	r.depths, r.variant = make([]uint8, n), make([]uint16, n)
	siblings := make([]uint16, n)
	for doc := range uint32(n) { // parents usually precede their children; otherwise, the child is treated as a root
		parent, ok := r.terms.Parent(doc)
		if !ok {
			continue
		}
		r.depths[doc] = min(r.depths[parent], math.MaxUint8-1) + 1
		r.variant[doc] = r.variant[parent]
		if axis[parent] {
			r.variant[doc] = min(r.variant[doc]+siblings[parent], maxVariants)
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
	return WithWeight(rank, r.terms.Weight(doc))
}

// ForeignRank returns the rank of a document with a display that is not in the requested language. Among both selectable and
// abstract documents, it sorts after documents with a display in the requested language.
func ForeignRank(rank uint32) uint32 { return rank | rankForeign }

// WithWeight returns a rank in which the usage weight is replaced.
func WithWeight(rank uint32, weight float64) uint32 {
	if rank&rankAbstract != 0 || !(weight > 0) {
		return rank | weightMask
	}
	step := 1 + max(0, min((math.Log2(weight)-minWeightExponent)*weightSteps, maxWeightPart-1))
	return rank&^weightMask | (maxWeightPart-uint32(step))<<weightShift
}

func (r *ranker) generality(doc uint32) uint32 {
	information := float64(natsPerLevel * int(r.depths[doc]))
	n := float64(r.terms.Len())
	r.eachWord(doc, func(word []byte) { information += math.Log(n / float64(r.documentCounts[r.words.id(word)])) })
	return uint32(min(information*generalitySteps, 1<<generalityBits-1))
}

// Corpus is a list of documents to search, identified by index. Callers must not modify the returned bytes.
type Corpus interface {
	// Len returns the number of documents.
	Len() int

	// Code returns the code of a document.
	Code(doc uint32) []byte

	// Display returns the display of a document, or its code if it has no display.
	Display(doc uint32) []byte

	// AppendOtherTexts appends the other searchable texts of a document. The last foreign texts are not in the requested
	// language: none of their words is treated as part of a head.
	AppendOtherTexts(dst [][]byte, doc uint32) (others [][]byte, foreign int)

	// Rank returns the rank of a document among equally good matches, as computed by [Ranks].
	Rank(doc uint32) uint32

	// Language returns the language tag (BCP 47) that determines inflections and stop words.
	Language() string
}
