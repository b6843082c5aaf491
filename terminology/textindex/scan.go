package textindex

import (
	"bytes"
	"slices"
)

// searchScan looks for a filter in all documents, one by one. An index is a shortcut for it.
func searchScan(c Corpus, divided *Compounds, f *Filter, how leniency, from, to int, spend func(steps int) error) ([]Hit, int, error) {
	j := judge{reader: newReader(c), divided: divided, filter: f, spend: spend}
	j.asked = f.in(j.reader.spotter.language)
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
		if !slices.ContainsFunc(j.reader.spots(), func(s spot) bool {
			return w.fit(s.word) != fitNot || w.isLong() && bytes.Contains(s.word, w.word)
		}) {
			return false
		}
	}
	return true
}
