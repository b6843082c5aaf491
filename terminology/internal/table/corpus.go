package table

import (
	"cmp"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/bitset"
	"github.com/caddy-fhir/caddy-fhir/terminology/textindex"
)

// conceptCorpus makes the concepts of a code system searchable in a list of languages.
type conceptCorpus struct {
	table     *Table
	languages codesystem.Languages
	language  string     // the best of these; "" for none
	foreign   bitset.Set // the concepts that are shown in another; nil if there are none
}

func newConceptCorpus(t *Table, l codesystem.Languages) *conceptCorpus {
	c := &conceptCorpus{table: t, languages: l, language: l.Best(t)}
	if !codesystem.MayBeForeign(t, c.language) {
		return c
	}
	var texts []codesystem.Text
	for concept := range uint32(t.Len()) {
		texts = t.AppendTexts(texts[:0], codesystem.At(concept))
		if shown := l.Preferred(texts); shown >= 0 && l.Foreign(&texts[shown], c.language) {
			if c.foreign == nil {
				c.foreign = bitset.New(t.Len())
			}
			c.foreign.Add(concept)
		}
	}
	return c
}

// Len implements [textindex.Corpus], as do the methods below.
func (c *conceptCorpus) Len() int               { return c.table.Len() }
func (c *conceptCorpus) Code(doc uint32) []byte { return c.table.concepts.codeOf(doc) }
func (c *conceptCorpus) Language() string       { return cmp.Or(c.language, c.table.language) }

func (c *conceptCorpus) Rank(doc uint32) uint32 {
	rank := c.table.SearchRank(doc)
	if c.foreign != nil && c.foreign.Has(doc) {
		return textindex.Foreign(rank)
	}
	return rank
}

func (c *conceptCorpus) Display(doc uint32) []byte {
	display := c.table.concepts.displayOf(doc)
	if !c.languages.None() {
		display = c.languages.DisplayOf(c.table.AppendTexts(nil, codesystem.At(doc)))
	}
	if len(display) == 0 {
		return c.table.concepts.codeOf(doc)
	}
	return display
}

func (c *conceptCorpus) AppendOthers(dst [][]byte, doc uint32) (others [][]byte, foreign int) {
	if !c.languages.None() {
		return c.languages.AppendSearched(dst, c.table.AppendTexts(nil, codesystem.At(doc)), c.language)
	}
	for row, end := c.table.designations.from.rows(doc); row < end; row++ {
		dst = append(dst, c.table.concepts.texts.At(c.table.designations.value[row]))
	}
	return dst, 0
}

// conceptTerms are the concepts of a code system, to be ranked by their own displays.
type conceptTerms struct{ table *Table }

// Len implements [textindex.Terms], as do the methods below.
func (t conceptTerms) Len() int                  { return t.table.Len() }
func (t conceptTerms) Display(doc uint32) []byte { return t.table.concepts.displayOf(doc) }
func (t conceptTerms) Abstract(doc uint32) bool {
	return t.table.concepts.flags[doc]&codesystem.FlagAbstract != 0
}
func (t conceptTerms) Inactive(doc uint32) bool {
	return t.table.concepts.flags[doc]&codesystem.FlagInactive != 0
}
func (t conceptTerms) Weight(doc uint32) float64 { return t.table.SearchWeight(doc) }

func (t conceptTerms) Parent(doc uint32) (parent uint32, ok bool) {
	if parents := t.table.Parents(doc); len(parents) > 0 {
		return parents[0], true
	}
	return 0, false
}

// SearchRank returns where a concept comes among others that match a filter equally well; see [textindex.Ranks].
func (t *Table) SearchRank(concept uint32) uint32 {
	t.indexes.once.Do(func() { t.indexes.ranks = textindex.Ranks(conceptTerms{t}) })
	return t.indexes.ranks[concept]
}

// SearchIndex returns the index for a list of languages, built on first use.
func (t *Table) SearchIndex(list string) *textindex.Index {
	wanted := codesystem.ParseLanguages(list)
	return t.indexes.get(wanted.Key(languages(t)), func() *textindex.Index {
		return textindex.New(newConceptCorpus(t, wanted))
	})()
}
