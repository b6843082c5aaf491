package textindex

import (
	"cmp"

	"github.com/caddy-fhir/caddy-fhir/terminology/internal/bitset"
)

// Part is some of the documents of a search. Index or Corpus must be set.
type Part struct {
	// Corpus is the documents, which are scanned.
	Corpus Corpus

	// Compounds are those of Corpus, whose parts are found as well; see [NewCompounds]. Default: none.
	Compounds *Compounds

	// Index finds documents of its own corpus instead. Default: none.
	Index *Index

	// Within are the documents of the index to search; see [Index.RanksOf]. Default: all.
	Within bitset.Set

	// Place returns a document's position among those of all parts, which decides between documents that match equally
	// well; documents of one part may share one. Default: 0 for all.
	Place func(doc uint32) uint32
}

// Hit is a document that matches, and how well.
type Hit struct {
	// Part is the document's part.
	Part uint32

	// Doc is the document.
	Doc uint32

	tier tier
}

// compareHits compares all that decides the order, except the place in the expansion.
func compareHits(c Corpus, a Hit, d Corpus, b Hit) int {
	if a.tier != b.tier {
		return int(a.tier) - int(b.tier)
	}
	return cmp.Compare(c.Rank(a.Doc), d.Rank(b.Doc)) // a difference may not fit an int of 32 bits
}

func (p *Part) corpus() Corpus {
	if p.Index != nil {
		return p.Index.corpus
	}
	return p.Corpus
}

// divided returns the compounds; nil if there are none.
func (p *Part) divided() *Compounds {
	if p.Index != nil {
		return p.Index.divided
	}
	return p.Compounds
}

func (p *Part) place(doc uint32) uint32 {
	if p.Place == nil {
		return 0
	}
	return p.Place(doc)
}
