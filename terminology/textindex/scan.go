package textindex

import (
	"bytes"
	"slices"
)

// searchScan looks for a filter in all documents, one by one. An index is a shortcut for it.
func searchScan(c Corpus, parts func(word []byte) []part, f *Filter, how leniency, from, to int, spend func(steps int) error) ([]Hit, int, error) {
	l := languageOf(c.Language())
	j := judge{corpus: c, parts: parts, filter: f, asked: f.in(l), spend: spend}
	j.spotter.language = l
	var hits []Hit
	for doc := range uint32(c.Len()) {
		t := tierNone
		if how == strictly {
			t = j.tier(doc)
		} else if j.contains(doc) {
			t = tierLenient
		}
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

// pay pays for looking at the words of a document that many times.
func (j *judge) pay(times int) {
	j.err = j.spend(1 + len(j.text)*(1+times)/bytesPerStep)
}

// compareHits compares all that decides the order, except the place in the expansion.
func compareHits(c Corpus, a Hit, d Corpus, b Hit) int {
	if a.tier != b.tier {
		return int(a.tier) - int(b.tier)
	}
	return int(c.Rank(a.Doc)) - int(d.Rank(b.Doc))
}

// contains reports whether a document matches if long words may be in the middle of others.
func (j *judge) contains(doc uint32) bool {
	j.read(doc)
	return !slices.ContainsFunc(j.asked.segments, func(s segment) bool { return !j.containsOne(s) })
}

// containsOne reports whether a document has one of the ways to say a segment.
func (j *judge) containsOne(s segment) bool {
	return slices.ContainsFunc(s, func(way []need) bool {
		return !slices.ContainsFunc(way, func(n need) bool {
			if n.run != nil {
				return !j.containsOne(n.run)
			}
			return !j.within(n.words) && j.words(n.joined) == tierNone
		})
	})
}

// within reports whether each of some words is there, in the middle of a word if it is long enough.
func (j *judge) within(words []wanted) bool {
	for i := range words {
		w := &words[i]
		if !slices.ContainsFunc(j.spotter.spots, func(s spot) bool {
			return w.fit(s.word) != fitNot || w.isLong() && bytes.Contains(s.word, w.word)
		}) {
			return false
		}
	}
	return true
}

// isLong reports whether a word may be in the middle of others.
func (w *wanted) isLong() bool { return w.begins && !w.joined && letters(w.word) >= fewestWithin }
