package textindex

import "slices"

// searchScan looks for a filter in all documents, one by one. An index is a shortcut for it.
func searchScan(c Corpus, divided *Compounds, f *Filter, from, to int, spend func(steps int) error) ([]Hit, int, error) {
	j := judge{reader: newReader(c), divided: divided, filter: f, spend: spend}
	j.asked = f.in(j.reader.spotter.language)
	var hits []Hit
	for doc := range uint32(c.Len()) {
		t := j.tier(doc)
		j.pay(len(f.terms))
		if t != tierNone {
			hits = append(hits, Hit{Doc: doc, tier: t})
		}
		if j.err != nil {
			return nil, 0, j.err
		}
	}
	slices.SortStableFunc(hits, func(a, b Hit) int { return compareHits(c, a, c, b) })
	total := len(hits)
	return hits[min(from, total):min(to, total)], total, nil
}
