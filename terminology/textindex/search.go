package textindex

import (
	"bytes"
	"cmp"
	"runtime"
	"slices"

	"github.com/caddy-fhir/caddy-fhir/terminology/internal/bitset"
)

// Search returns the documents that match a filter in positions [from, to), sorted by [Rule], and the total number of matches.
// It charges steps of about fifty nanoseconds to spend and returns the error of spend. A nil spend means no limit.
func Search(parts []Part, f *Filter, from, to int, spend func(steps int) error) ([]Hit, int, error) {
	if spend == nil {
		spend = func(int) error { return nil }
	}
	if f.corrections != nil || f.splitsRuns {
		f.corrections, f.splitsRuns, f.language = nil, false, nil
	}
	if hits, total, err := searchStrict(parts, f, from, to, spend); total > 0 || err != nil {
		return hits, total, err
	}
	if f.hasLongWord() {
		if hits, total, err := searchParts(parts, f, infixMatch, from, to, spend); total > 0 || err != nil {
			return hits, total, err
		}
	}
	if corrected, err := f.correct(parts, spend); err != nil || !corrected {
		return nil, 0, err
	}
	hits, total, err := searchStrict(parts, f, from, to, spend)
	if total == 0 {
		f.corrections, f.language = nil, nil
	}
	return hits, total, err
}

// searchStrict searches in strict mode. It first uses only the longest runs with synonyms, so that matches of an entire run are
// not lost among others. It splits runs only if nothing matches.
func searchStrict(parts []Part, f *Filter, from, to int, spend func(steps int) error) ([]Hit, int, error) {
	hits, total, err := searchParts(parts, f, strictMatch, from, to, spend)
	if total > 0 || err != nil || !f.prepared.hasRuns() {
		return hits, total, err
	}
	f.splitsRuns, f.language = true, nil
	if hits, total, err = searchParts(parts, f, strictMatch, from, to, spend); total == 0 {
		f.splitsRuns, f.language = false, nil
	}
	return hits, total, err
}

// searchParts is like Search, but searches only with the given leniency.
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
		return cmp.Compare(p.position(a.Doc), q.position(b.Doc))
	})
	return all[min(from, len(all)):min(to, len(all))], total, nil
}

func (p *Part) search(f *Filter, how leniency, from, to int, spend func(steps int) error) ([]Hit, int, error) {
	if p.Index == nil {
		return searchScan(p.Corpus, p.compounds(), f, how, from, to, spend)
	}
	if how != strictMatch { // a lenient search scans all words in the index
		if err := spend(p.Index.words.len() / bytesPerStep); err != nil {
			return nil, 0, err
		}
	}
	hits, total := searchIndex(p.Index, p.Ranks, f, how, from, to)
	runtime.KeepAlive(p.Index) // the arrays of the index are unmapped once the index is unreachable
	return hits, total, nil
}

// Part is a part of the documents to search. Either Index or Corpus is required.
type Part struct {
	// Corpus contains documents that are scanned one by one.
	Corpus Corpus

	// Compounds contains the compound words of Corpus; see [NewCompounds]. Default: nil, compounds are not split.
	Compounds *Compounds

	// Index is searched instead of Corpus. It contains the documents from which it was built. Default: nil, Corpus is scanned.
	Index *Index

	// Ranks limits a search in Index to a set of ranks; see [Index.RanksOf]. Default: nil, all documents.
	Ranks bitset.Set

	// Position returns the position of a document among all parts. Lower positions come first among equally good matches.
	// Documents in the same part may have the same position. Default: nil, 0 for all documents.
	Position func(doc uint32) uint32
}

// Hit is a matching document.
type Hit struct {
	// Part is the index of the document's part.
	Part uint32

	// Doc is the number of the document within its part.
	Doc uint32

	tier tier
}

// compareHits compares two hits by tier and rank, but not by position.
func compareHits(c Corpus, a Hit, d Corpus, b Hit) int {
	if a.tier != b.tier {
		return int(a.tier) - int(b.tier)
	}
	return cmp.Compare(c.Rank(a.Doc), d.Rank(b.Doc)) // a difference may overflow a 32-bit int
}

func (p *Part) corpus() Corpus {
	if p.Index != nil {
		return p.Index.corpus
	}
	return p.Corpus
}

// compounds returns the compounds in the part, or nil if they are not split.
func (p *Part) compounds() *Compounds {
	if p.Index != nil {
		return p.Index.compounds
	}
	return p.Compounds
}

func (p *Part) position(doc uint32) uint32 {
	if p.Position == nil {
		return 0
	}
	return p.Position(doc)
}

// searchScan compares each document with the filter. An index returns the same result faster.
func searchScan(c Corpus, divided *Compounds, f *Filter, how leniency, from, to int, spend func(steps int) error) ([]Hit, int, error) {
	j := tierMatcher{reader: newReader(c), compounds: divided, filter: f, spend: spend}
	j.prepared = f.prepareFor(j.reader.tokenizer.language)
	var hits []Hit
	for doc := range uint32(c.Len()) {
		t := tierNone
		if how == strictMatch {
			t = j.tier(doc)
		} else if j.contains(doc) {
			t = tierLenient
		}
		j.charge(len(f.terms))
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

// contains reports whether a document matches if long words may also match in the middle of words.
func (j *tierMatcher) contains(doc uint32) bool {
	j.read(doc)
	return !slices.ContainsFunc(j.prepared.segments, func(s segment) bool { return !j.containsAlternative(s) })
}

// containsAlternative is like contains, but for any alternative of a segment.
func (j *tierMatcher) containsAlternative(s segment) bool {
	return slices.ContainsFunc(s, func(way []requirement) bool {
		return !slices.ContainsFunc(way, func(n requirement) bool {
			if n.run != nil {
				return !j.containsAlternative(n.run)
			}
			return !j.containsWords(n.words) && j.wordsTier(n.joined) == tierNone
		})
	})
}

// containsWords is like contains, but for all words in a list.
func (j *tierMatcher) containsWords(words []queryWord) bool {
	for i := range words {
		w := &words[i]
		if !slices.ContainsFunc(j.reader.tokens(), func(s token) bool {
			return w.fit(s.word) != fitNone || w.isLong() && bytes.Contains(s.word, w.word)
		}) {
			return false
		}
	}
	return true
}
