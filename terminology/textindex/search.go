package textindex

import (
	"cmp"
	"runtime"
	"slices"
)

// Search returns the documents from position from up to to that match a filter by [Rule], and how many match in all. It
// pays for its steps, of some fifty nanoseconds each, with spend, unless that is nil, and fails if spend does.
func Search(parts []Part, f *Filter, from, to int, spend func(steps int) error) ([]Hit, int, error) {
	if spend == nil {
		spend = func(int) error { return nil }
	}
	if f.read != nil || f.divided {
		f.read, f.divided, f.language = nil, false, nil
	}
	if hits, total, err := searchRuns(parts, f, from, to, spend); total > 0 || err != nil {
		return hits, total, err
	}
	if f.hasLongWord() {
		if hits, total, err := searchParts(parts, f, withinWords, from, to, spend); total > 0 || err != nil {
			return hits, total, err
		}
	}
	if corrected, err := f.correct(parts, spend); err != nil || !corrected {
		return nil, 0, err
	}
	hits, total, err := searchRuns(parts, f, from, to, spend)
	if total == 0 {
		f.read, f.language = nil, nil
	}
	return hits, total, err
}

// searchRuns is Search strictly: first with the longest runs that have synonyms alone, so that what is meant as a whole is not
// flooded, and if nothing is found, with shorter ones within these as well.
func searchRuns(parts []Part, f *Filter, from, to int, spend func(steps int) error) ([]Hit, int, error) {
	hits, total, err := searchParts(parts, f, strictly, from, to, spend)
	if total > 0 || err != nil || !f.asked.hasRuns() {
		return hits, total, err
	}
	f.divided, f.language = true, nil
	if hits, total, err = searchParts(parts, f, strictly, from, to, spend); total == 0 {
		f.divided, f.language = false, nil
	}
	return hits, total, err
}

// searchParts is Search in one way.
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
		return cmp.Compare(p.place(a.Doc), q.place(b.Doc))
	})
	return all[min(from, len(all)):min(to, len(all))], total, nil
}

func (p *Part) search(f *Filter, how leniency, from, to int, spend func(steps int) error) ([]Hit, int, error) {
	if p.Index == nil {
		return searchScan(p.Corpus, p.divided(), f, how, from, to, spend)
	}
	if how != strictly { // it goes through all words
		if err := spend(p.Index.words.len() / bytesPerStep); err != nil {
			return nil, 0, err
		}
	}
	hits, total := searchIndex(p.Index, p.Within, f, how, from, to)
	runtime.KeepAlive(p.Index) // its arrays are unmapped with it
	return hits, total, nil
}
