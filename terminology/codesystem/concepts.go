package codesystem

import "github.com/caddy-fhir/caddy-fhir/terminology/internal/bitset"

// Concepts is a [System] with its optional interfaces, found once: operations need them for each code. List, Search and
// Converter are nil if the system has not got them; for the others, something that has nothing stands in.
type Concepts struct {
	System

	// List is nil if the concepts cannot be listed, as those of a grammar.
	List List

	// Search is nil if the concepts have no index.
	Search Search

	// Converter is nil if the concepts measure nothing.
	Converter Converter

	// The others are never nil.
	Hierarchy    Hierarchy
	Filters      Filters      // see above
	FilterReader FilterReader // see above
	Explainer    Explainer    // see above
	Notes        Notes        // see above
	Dialects     Dialects     // see above
	Refuser      Refuser      // see above
}

// Of finds what a system can do. It asks it nothing: concepts may be read only when they are needed.
func Of(s System) Concepts {
	c := Concepts{System: s}
	c.List, _ = s.(List)
	c.Search, _ = s.(Search)
	c.Converter, _ = s.(Converter)
	c.Hierarchy = optional[Hierarchy](s, flat{c.List})
	c.Filters = optional[Filters](s, plain{})
	c.Notes = optional[Notes](s, plain{})
	c.Dialects = optional[Dialects](s, monolingual{s})
	c.FilterReader = optional[FilterReader](s, plain{})
	c.Explainer = optional[Explainer](s, plain{})
	c.Refuser = optional[Refuser](s, plain{})
	return c
}

// optional returns an interface of a system, or what stands in for it.
func optional[I any](s System, other I) I {
	if i, ok := s.(I); ok {
		return i
	}
	return other
}

// Len returns how many concepts can be listed.
func (c *Concepts) Len() int {
	if c.List == nil {
		return 0
	}
	return c.List.Len()
}

// flat is a hierarchy in which nothing is above or below anything.
type flat struct{ list List }

func (flat) Parents(uint32) []uint32  { return nil }
func (flat) Children(uint32) []uint32 { return nil }
func (f flat) Above(uint32, func(int) error) (bitset.Set, error) {
	c := Concepts{List: f.list}
	return bitset.New(max(1, c.Len())), nil
}

func (f flat) Below(concept uint32, _ func(int) error) (bitset.Set, error) {
	return f.Above(concept, nil)
}

// plain has no properties, and says nothing of concepts.
type plain struct{}

func (plain) Properties() []Property                                  { return nil }
func (plain) Values(Concept, int, func([]byte) bool)                  {}
func (plain) Definition(Concept) []byte                               { return nil }
func (plain) Status(Concept) string                                   { return "" }
func (plain) AppendExtensions(dst []Extension, _ Concept) []Extension { return dst }
func (plain) FilterValue(_ int, value string) (string, error)         { return value, nil }
func (plain) Explain(Concept, int, string, string) string             { return "" }
func (plain) Refusal([]byte) string                                   { return "" }

// monolingual has texts in the language of its displays alone.
type monolingual struct{ System }

// HasLanguage implements [Dialects].
func (m monolingual) HasLanguage(language string) bool {
	return HasLanguage([]string{m.Language()}, language)
}
