package textindex

import (
	"runtime"
	"slices"

	"github.com/caddy-fhir/caddy-fhir/terminology/bitset"
)

// Part is some of the documents that are searched together. Index or Corpus must be set.
type Part struct {
	// Corpus is the documents, which are looked at one by one.
	Corpus Corpus

	// Index finds documents instead, those of its own corpus. Default: none.
	Index *Index

	// Within are those documents of the index that are searched; see [Index.RanksOf]. Default: all.
	Within bitset.Set

	// Place returns where a document stands among those of all parts, which decides between documents that match
	// equally well; two of the same part may have the same place. Default: all have the place 0.
	Place func(doc uint32) uint32
}

// Hit is a document that matches, and how well.
type Hit struct {
	// Part is the part that the document is in.
	Part uint32

	// Doc is the document.
	Doc uint32

	tier tier
}

// bytesPerStep is how many bytes of text are looked at in one step.
const bytesPerStep = 32

// Search returns the documents that match a filter, as [Rule] has it, from the position from up to to, and how many
// match in all. It pays for its steps, of some fifty nanoseconds each, with spend, unless that is nil, and fails where spend does.
func Search(parts []Part, f *Filter, from, to int, spend func(steps int) error) ([]Hit, int, error) {
	if spend == nil {
		spend = func(int) error { return nil }
	}
	for _, how := range []leniency{strictly, withinWords, withTypos} {
		if !f.allows(how) {
			continue
		}
		if hits, total, err := searchParts(parts, f, how, from, to, spend); total > 0 || err != nil {
			return hits, total, err
		}
	}
	return nil, 0, nil
}

// searchParts is searchText in one way.
func searchParts(parts []Part, f *Filter, how leniency, from, to int, spend func(steps int) error) ([]Hit, int, error) {
	if len(parts) == 1 {
		return parts[0].search(f, how, from, to, spend)
	}
	var all []Hit
	total := 0
	for i := range parts {
		hits, n, err := parts[i].search(f, how, 0, to, spend)
		if err != nil {
			return nil, 0, err
		}
		total += n
		for _, h := range hits {
			h.Part = uint32(i)
			all = append(all, h)
		}
	}
	slices.SortStableFunc(all, func(a, b Hit) int {
		p, q := &parts[a.Part], &parts[b.Part]
		if c := compareHits(p.corpus(), a, q.corpus(), b); c != 0 {
			return c
		}
		return int(p.place(a.Doc)) - int(q.place(b.Doc))
	})
	return all[min(from, len(all)):min(to, len(all))], total, nil
}

// search returns the hits of one part.
func (p *Part) search(f *Filter, how leniency, from, to int, spend func(steps int) error) ([]Hit, int, error) {
	if p.Index == nil {
		return searchScan(p.Corpus, f, how, from, to, spend)
	}
	if how != strictly { // goes through all words
		if err := spend(p.Index.words.len() / bytesPerStep); err != nil {
			return nil, 0, err
		}
	}
	hits, total := searchIndex(p.Index, p.Within, f, how, from, to)
	runtime.KeepAlive(p.Index) // its arrays are unmapped with it
	return hits, total, nil
}

// corpus returns the documents of the part.
func (p *Part) corpus() Corpus {
	if p.Index != nil {
		return p.Index.corpus
	}
	return p.Corpus
}

// place returns where a document stands among those of all parts.
func (p *Part) place(doc uint32) uint32 {
	if p.Place == nil {
		return 0
	}
	return p.Place(doc)
}
