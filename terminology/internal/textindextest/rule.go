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

// Rule is the rule of the search by the letter, for the documents of a corpus.
type Rule struct {
	documents Documents
	synonyms  []Synonym
	forms     forms
	words     [][]plainWord // by document
	parts     *dictionary   // nil if the language has no compounds
}

// NewRule returns the rule for documents, with synonyms.
func NewRule(d Documents, synonyms ...Synonym) *Rule {
	language := &inEnglish
	if d.Language() == "de" {
		language = &inGerman
	}
	r := &Rule{documents: d, synonyms: synonyms, forms: newForms(language)}
	for i := range d {
		r.words = append(r.words, plainSpotsOf(d[i], language.stops))
	}
	if language.compounds {
		r.parts = newDictionary(r.words)
		for i, words := range r.words {
			r.words[i] = r.parts.withParts(words)
		}
	}
	return r
}

func (r *Rule) query(filter string) plainQuery {
	return plainQuery{filter: strings.ToValidUTF8(filter, "\ufffd"), synonyms: r.synonyms, forms: r.forms}
}

// isLenient reports whether long words of a filter may be in the middle of others.
func isLenient(filter string) bool { return len([]rune(strings.Join(Words(filter), ""))) > 1 }

// TierOf returns the tier of a document for a filter that is not corrected, if no other document has a better one.
func (r *Rule) TierOf(d Document, filter string) Tier {
	q, words := r.query(filter), plainSpotsOf(d, r.forms.language.stops)
	if r.parts != nil {
		words = r.parts.withParts(words)
	}
	t := q.tier(d, words, q.segments())
	if t == None && isLenient(filter) && q.within(words) {
		return Lenient
	}
	return t
}

// Search returns what a filter finds, in order.
func (r *Rule) Search(filter string) []Hit {
	q := r.query(filter)
	hits := r.byRuns(q)
	if len(hits) == 0 && isLenient(filter) {
		for doc, words := range r.words {
			if q.within(words) {
				hits = append(hits, Hit{Doc: uint32(doc), Tier: Lenient})
			}
		}
	}
	if len(hits) == 0 {
		if q.correct(r.words); q.read != nil {
			hits = r.byRuns(q)
		}
	}
	slices.SortStableFunc(hits, func(a, b Hit) int {
		if a.Tier != b.Tier {
			return int(a.Tier) - int(b.Tier)
		}
		return int(r.documents.Rank(a.Doc)) - int(r.documents.Rank(b.Doc))
	})
	return hits
}

// byRuns returns what matches without being lenient, by the longest runs that have synonyms, or else by shorter ones too.
func (r *Rule) byRuns(q plainQuery) []Hit {
	if hits := r.strictly(q); len(hits) > 0 || len(r.synonyms) == 0 {
		return hits
	}
	q.divided = true
	return r.strictly(q)
}

// strictly returns what matches without being lenient.
func (r *Rule) strictly(q plainQuery) (hits []Hit) {
	segments := q.segments()
	for doc := range r.documents {
		if t := q.tier(r.documents[doc], r.words[doc], segments); t != None {
			hits = append(hits, Hit{Doc: uint32(doc), Tier: t})
		}
	}
	return hits
}
