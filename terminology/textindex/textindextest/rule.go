package textindextest

import (
	"slices"
	"strings"
)

// Hit is a document that matches.
type Hit struct {
	// Doc is its place in the corpus.
	Doc uint32

	// Tier is how well it matches.
	Tier Tier
}

// plainQuery is a filter, and what words with typos are read as.
type plainQuery struct {
	filter string
	read   map[string][]string
}

// Search returns what a filter finds in documents, in order, as the rule says it by the letter.
func Search(d Documents, filter string) []Hit {
	defer speak(d)()
	q := plainQuery{filter: strings.ToValidUTF8(filter, "\ufffd")}
	hits := q.strictly(d)
	if len(hits) == 0 && len([]rune(strings.Join(Words(filter), ""))) > 1 {
		for doc := range d {
			if q.within(d[doc]) {
				hits = append(hits, Hit{Doc: uint32(doc), Tier: Lenient})
			}
		}
	}
	if len(hits) == 0 {
		if q.correct(d); q.read != nil {
			hits = q.strictly(d)
		}
	}
	slices.SortStableFunc(hits, func(a, b Hit) int {
		if a.Tier != b.Tier {
			return int(a.Tier) - int(b.Tier)
		}
		return int(d.Rank(a.Doc)) - int(d.Rank(b.Doc))
	})
	return hits
}

// strictly returns what matches without being lenient.
func (q plainQuery) strictly(d Documents) (hits []Hit) {
	for doc := range d {
		if t := q.tier(d[doc]); t != None {
			hits = append(hits, Hit{Doc: uint32(doc), Tier: t})
		}
	}
	return hits
}
