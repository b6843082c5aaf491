package textindex

import (
	"bytes"
	"slices"
)

// searchScan looks for a filter in all documents, one by one. An index is a shortcut for it.
func searchScan(c Corpus, f *Filter, how leniency, from, to int, spend func(steps int) error) ([]Hit, int, error) {
	j := judge{corpus: c, filter: f, spend: spend}
	matches := j.lenient(how)
	var hits []Hit
	for doc := range uint32(c.Len()) {
		t := tierNone
		if how == strictly {
			t = j.tier(doc)
			j.pay(len(f.words))
		} else if matches(doc) {
			t = tierLenient
		}
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
	j.err = j.spend(1 + len(j.all)*(1+times)/bytesPerStep)
}

// compareHits compares all that decides the order, except the place in the expansion.
func compareHits(c Corpus, a Hit, d Corpus, b Hit) int {
	if a.tier != b.tier {
		return int(a.tier) - int(b.tier)
	}
	return int(staticKey(c, a.Doc)) - int(staticKey(d, b.Doc))
}

// lenient returns how to tell whether a document matches when not looking strictly.
func (j *judge) lenient(how leniency) func(doc uint32) bool {
	switch how {
	case withinWords:
		return j.contains
	case withTypos:
		typists := make(map[string]*typist)
		for _, word := range j.filter.words {
			if most := maxTypos(word[1:]); most > 0 {
				typists[string(word)] = newTypist(word[1:], most)
			}
		}
		return func(doc uint32) bool { return j.meant(doc, typists) }
	}
	return nil
}

// contains reports whether words of a document contain each word of the filter.
func (j *judge) contains(doc uint32) bool {
	j.read(doc)
	j.pay(len(j.filter.words))
	return !slices.ContainsFunc(j.filter.words, func(word []byte) bool { return !bytes.Contains(j.all, word[1:]) })
}

// meant reports whether a document matches if typos are forgiven.
func (j *judge) meant(doc uint32, typists map[string]*typist) bool {
	j.read(doc)
	if j.pay(len(j.filter.line)); j.err != nil {
		return false
	}
	for i := range j.filter.terms {
		t := &j.filter.terms[i]
		if t.in(j.all) {
			continue
		}
		if slices.ContainsFunc(t.words, func(word []byte) bool { return !isMeant(j.all, word, typists[string(word)]) }) {
			return false
		}
	}
	return true
}

// isMeant reports whether one of a line's words begins with what may be meant by word.
func isMeant(line, word []byte, t *typist) bool {
	if t == nil {
		return (&term{words: [][]byte{word}}).in(line)
	}
	for len(line) > 0 {
		var candidate []byte
		candidate, line = nextWord(line)
		if _, meant := t.look(candidate); meant {
			return true
		}
	}
	return false
}
