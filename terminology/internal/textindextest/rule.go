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
	filter  string
	read    map[string][]string
	divided bool // whether runs that have synonyms are also read as shorter ones
}

// Search returns what a filter finds in documents, in order, as the rule says it by the letter.
func Search(d Documents, filter string) []Hit {
	defer speak(d)()
	q := plainQuery{filter: strings.ToValidUTF8(filter, "\ufffd")}
	hits := q.byRuns(d)
	if len(hits) == 0 && len([]rune(strings.Join(Words(filter), ""))) > 1 {
		for doc := range d {
			if q.within(d[doc]) {
				hits = append(hits, Hit{Doc: uint32(doc), Tier: Lenient})
			}
		}
	}
	if len(hits) == 0 {
		if q.correct(d); q.read != nil {
			hits = q.byRuns(d)
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

// byRuns returns what matches without being lenient, by the longest runs that have synonyms, or else by shorter ones too.
func (q plainQuery) byRuns(d Documents) []Hit {
	if hits := q.strictly(d); len(hits) > 0 || len(Synonyms) == 0 {
		return hits
	}
	q.divided = true
	return q.strictly(d)
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
