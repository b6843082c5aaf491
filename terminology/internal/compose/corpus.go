package compose

import (
	"cmp"
	"sync"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/bitset"
	"github.com/caddy-fhir/caddy-fhir/terminology/textindex"
)

// entryCorpus is a [textindex.Corpus] of entries of an expansion.
type entryCorpus struct {
	library   *definitions.Set
	codes     *CodeList
	rows      []uint32 // the index in codes.entries of each document
	languages codesystem.Languages

	best map[uint32]string // by code system: the most preferred language that it has, or one of its supplements; "" for none

	once  sync.Once
	ranks []uint32 // of entries without what code systems know

	onceShown sync.Once
	mixed     bool       // there may be documents that are shown in another language
	foreign   bitset.Set // these documents
}

func newEntryCorpus(l *definitions.Set, x *CodeList, rows []uint32, languages codesystem.Languages) *entryCorpus {
	c := &entryCorpus{library: l, codes: x, rows: rows, languages: languages}
	if languages.None() {
		return c
	}
	c.best = make(map[uint32]string)
	for _, index := range x.CodeSystems {
		cs := l.Systems.CodeSystems[index]
		systems := []codesystem.Dialects{cs.Concepts.Dialects}
		for _, s := range x.Supplements {
			if s.Of == index {
				systems = append(systems, l.Systems.CodeSystems[s.By].Concepts.Dialects)
			}
		}
		c.best[index] = languages.Best(systems...)
		c.mixed = c.mixed || codesystem.MayBeForeign(cs.Concepts, c.best[index])
	}
	return c
}

// Len returns the number of entries.
func (c *entryCorpus) Len() int { return len(c.rows) }

func (c *entryCorpus) entry(doc uint32) definitions.Entry { return c.codes.Entries[c.rows[doc]] }

// Code returns an entry's code.
func (c *entryCorpus) Code(doc uint32) []byte { return c.library.Code(c.entry(doc)) }

// Display returns an entry's display in the languages, or else its code.
func (c *entryCorpus) Display(doc uint32) []byte {
	display := c.library.Display(c.entry(doc))
	if !c.languages.None() {
		display = c.languages.DisplayOf(c.library.ShownTexts(nil, c.library.Locate(c.entry(doc)), "", c.codes.Supplements))
	}
	if len(display) == 0 {
		return c.Code(doc)
	}
	return display
}

// AppendOthers appends the other texts of an entry that are searched.
func (c *entryCorpus) AppendOthers(dst [][]byte, doc uint32) (others [][]byte, foreign int) {
	e := c.entry(doc)
	return c.languages.AppendSearched(dst, c.library.ShownTexts(nil, c.library.Locate(e), "", c.codes.Supplements), c.language(e))
}

// language returns the language that an entry is shown in, if it can be; "" if any will do.
func (c *entryCorpus) language(e definitions.Entry) string {
	if !e.IsKnown() {
		return ""
	}
	return c.best[e.CodeSystem]
}

// isForeign reports whether an entry is shown in another language than it should be.
func (c *entryCorpus) isForeign(doc uint32) bool {
	if !c.mixed {
		return false
	}
	c.onceShown.Do(c.findForeign)
	return c.foreign.Has(doc)
}

func (c *entryCorpus) findForeign() {
	c.foreign = bitset.New(c.Len())
	var texts []codesystem.Text
	for doc := range uint32(c.Len()) {
		e := c.entry(doc)
		language := c.language(e)
		if !e.IsKnown() || !codesystem.MayBeForeign(c.library.Systems.CodeSystems[e.CodeSystem].Concepts, language) {
			continue
		}
		texts = c.library.ShownTexts(texts[:0], c.library.Locate(e), "", c.codes.Supplements)
		if shown := c.languages.Preferred(texts); shown >= 0 && c.languages.Foreign(&texts[shown], language) {
			c.foreign.Add(doc)
		}
	}
}

// Rank returns the rank of an entry's concept in its code system, or, where that is unknown, in the expansion; by the
// value set's own weight, if it has one.
func (c *entryCorpus) Rank(doc uint32) uint32 {
	e := c.entry(doc)
	if !e.IsKnown() || c.library.Systems.CodeSystems[e.CodeSystem].Concepts.Search == nil {
		c.once.Do(func() { c.ranks = textindex.Ranks(entryTerms{c}) })
		return c.ranks[doc]
	}
	rank := c.library.Systems.CodeSystems[e.CodeSystem].Concepts.Search.SearchRank(e.Concept)
	if weight, ok := (listing{c.library, c.codes}).weight(e); ok {
		rank = textindex.Weighed(rank, weight)
	}
	if c.isForeign(doc) {
		rank = textindex.Foreign(rank)
	}
	return rank
}

// Language returns the language of the first entry whose code system is known.
func (c *entryCorpus) Language() string {
	for doc := range uint32(c.Len()) {
		if e := c.entry(doc); e.IsKnown() {
			return cmp.Or(c.language(e), c.library.Systems.CodeSystems[e.CodeSystem].Concepts.Language())
		}
	}
	return c.languages.First()
}

// entryTerms are the entries of an expansion, to be ranked without what their code systems know.
type entryTerms struct{ *entryCorpus }

// Parent implements [textindex.Terms], as do the methods below.
func (entryTerms) Parent(uint32) (uint32, bool) { return 0, false }
func (entryTerms) Abstract(uint32) bool         { return false }
func (entryTerms) Inactive(uint32) bool         { return false }

func (t entryTerms) Weight(doc uint32) float64 {
	weight, _ := listing{t.library, t.codes}.weight(t.entry(doc))
	return weight
}
