package codesystem

import "github.com/caddy-fhir/caddy-fhir/terminology/textindex"

// conceptCorpus makes the concepts of a code system searchable in a list of languages.
type conceptCorpus struct {
	table     *Table
	languages Languages
}

// Len implements [textindex.Corpus], as do the methods below.
func (c *conceptCorpus) Len() int               { return c.table.Len() }
func (c *conceptCorpus) Code(doc uint32) []byte { return c.table.Code(doc) }
func (c *conceptCorpus) Rank(doc uint32) uint32 { return c.table.SearchRank(doc) }
func (c *conceptCorpus) Language() string       { return c.table.SearchLanguage(&c.languages) }

func (c *conceptCorpus) Display(doc uint32) []byte {
	display := c.table.Display(doc)
	if !c.languages.None() {
		display = c.languages.DisplayOf(c.table.AppendTexts(nil, doc))
	}
	if len(display) == 0 {
		return c.table.Code(doc)
	}
	return display
}

func (c *conceptCorpus) AppendOthers(dst [][]byte, doc uint32) [][]byte {
	if !c.languages.None() {
		return c.languages.AppendSearched(dst, c.table.AppendTexts(nil, doc))
	}
	for row, end := c.table.designations.rows(doc); row < end; row++ {
		dst = append(dst, c.table.texts.At(c.table.designations.value[row]))
	}
	return dst
}

// conceptTerms are the concepts of a code system, to be ranked by their own displays.
type conceptTerms struct{ *Table }

// Abstract implements [textindex.Terms], as do the methods below.
func (t conceptTerms) Abstract(doc uint32) bool  { return t.flags[doc]&FlagAbstract != 0 }
func (t conceptTerms) Inactive(doc uint32) bool  { return t.flags[doc]&FlagInactive != 0 }
func (t conceptTerms) Weight(doc uint32) float64 { return t.SearchWeight(doc) }

func (t conceptTerms) Parent(doc uint32) (parent uint32, ok bool) {
	if parents := t.Parents(doc); len(parents) > 0 {
		return parents[0], true
	}
	return 0, false
}

// SearchRank returns where a concept comes among others that match a filter equally well; see [textindex.Ranks].
func (t *Table) SearchRank(concept uint32) uint32 {
	t.indexes.once.Do(func() { t.indexes.ranks = textindex.Ranks(conceptTerms{t}) })
	return t.indexes.ranks[concept]
}

// SearchLanguage returns the language in which concepts are searched: the most preferred that the code system has, or
// its own.
func (t *Table) SearchLanguage(wanted *Languages) string {
	for _, r := range wanted.ranges {
		if _, ok := t.rangeKey(r.tag); ok {
			return r.tag
		}
	}
	return t.language
}
