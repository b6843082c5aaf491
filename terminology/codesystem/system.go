package codesystem

import (
	"bytes"
	"unicode/utf8"

	"github.com/caddy-fhir/caddy-fhir/terminology/internal/bitset"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"
	"github.com/caddy-fhir/caddy-fhir/terminology/textindex"
)

// Concept identifies a concept of a [System]: by its number if the system is a [List], else by its code. A List that takes
// more codes than it lists identifies those by their code too.
type Concept struct {
	// Number counts from 0 in the order of the definition, parents before children. It means nothing outside.
	Number uint32

	// Code is as [System.Locate] returned it.
	Code []byte
}

// At returns the concept of a [List] with a number.
func At(number uint32) Concept { return Concept{Number: number} }

// System is the concepts of a code system. What else it can do are the optional interfaces below, which [Of] finds. A
// System is safe for concurrent use, and the bytes and lists it returns must not be changed.
type System interface {
	// Locate finds a concept by its code: exactly, or in any case if the code system ignores it.
	Locate(code []byte) (c Concept, ok bool)

	// Code returns a concept's code.
	Code(c Concept) []byte

	// Concept returns a concept's code, display, which may be nil, and flags at once.
	Concept(c Concept) (code, display []byte, flags Flags)

	// AppendTexts appends the display and the designations of a concept.
	AppendTexts(dst []Text, c Concept) []Text

	// AppendValues appends the values of all properties of a concept.
	AppendValues(dst []Value, c Concept) []Value

	// Language returns the language of the displays; "" if it is unknown.
	Language() string
}

// List is a [System] that numbers its concepts, so that they can be listed.
type List interface {
	// Len returns the number of concepts.
	Len() int

	// AppendConcepts appends the member concept of the CodeSystem, with a comma before it; nothing if there are no concepts.
	AppendConcepts(dst []byte) []byte
}

// Hierarchy is a [List] whose concepts are above or below others.
//
// spend pays for steps of some fifty nanoseconds; a method fails if it does.
type Hierarchy interface {
	// Parents returns the concepts directly above one.
	Parents(concept uint32) []uint32

	// Children returns the concepts directly below one.
	Children(concept uint32) []uint32

	// Above returns all ancestors of a concept, itself among them only if the hierarchy has a cycle.
	Above(concept uint32, spend func(steps int) error) (bitset.Set, error)

	// Below returns all descendants of a concept, itself among them only if the hierarchy has a cycle.
	Below(concept uint32, spend func(steps int) error) (bitset.Set, error)
}

// Filters is a [System] whose concepts have properties that filters can name.
type Filters interface {
	// Properties returns the properties that concepts may have.
	Properties() []Property

	// Values calls visit with the values of one of Properties, as text, until visit returns false.
	Values(c Concept, property int, visit func(text []byte) bool)
}

// Notes is a [System] that says more of concepts than their names and properties.
type Notes interface {
	// Definition returns a concept's definition, or nil.
	Definition(c Concept) []byte

	// Status returns why a concept is not simply active, or "".
	Status(c Concept) string

	// AppendExtensions appends the extensions of a concept.
	AppendExtensions(dst []Extension, c Concept) []Extension
}

// Dialects is a [System] with texts in several languages.
type Dialects interface {
	// HasLanguage reports whether there are texts in a language, or one that is like it.
	HasLanguage(language string) bool
}

// Search is a [List] that can be searched by text.
type Search interface {
	// SearchIndex returns the index that finds concepts by their texts in a list of languages, as [ParseLanguages] reads
	// it, or in the code system's own if it is empty.
	SearchIndex(languages string) *textindex.Index

	// SearchRank returns where a concept comes among others that match a filter equally well; see [textindex.Ranks].
	SearchRank(concept uint32) uint32

	// SearchWeight returns how much a concept is used, which is part of its rank; 0 if that is unknown.
	SearchWeight(concept uint32) float64
}

// Refuser is a [System] that can say why a code is none.
type Refuser interface {
	// Refusal returns why [System.Locate] finds no concept, for people; "" if it has nothing to say.
	Refusal(code []byte) string
}

// Explainer is a [Filters] that can say why a concept does not meet a filter.
type Explainer interface {
	// Explain returns, for people, why a concept does not meet a filter on one of Properties; "" if it has nothing to say.
	Explain(c Concept, property int, op, value string) string
}

// FilterReader is a [Filters] whose filters name values otherwise than Values visits them: as a code whose canonical form
// counts, for example.
type FilterReader interface {
	// FilterValue returns the value that a filter on one of Properties means. It fails if the filter's value is none.
	FilterValue(property int, value string) (string, error)
}

// Converter is a [System] whose codes measure the same things, as those of units do.
type Converter interface {
	// Convert reports whether what one code measures can be given in another, by which factor, if one will do, and
	// whether the two mean the same.
	Convert(from, to Concept) (factor string, equal, ok bool)
}

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

// Property is a property that a code system declares or a concept has.
type Property struct {
	// Code is the code of the property, and URI what it means; empty where the code system does not say.
	Code, URI string
}

// Is reports whether a property is the one that FHIR defines under a name: by its uri or its code, since many code
// systems declare no uri, or another.
func (p Property) Is(name string) bool {
	return p.URI == PropertyBase+name || p.Code == name
}

// PropertyBase is the start of the uris of the properties that FHIR defines (R4 §4.8.10).
const PropertyBase = "http://hl7.org/fhir/concept-properties#"

// Value is a property value of a concept.
type Value struct {
	// Property is the property.
	Property *Property

	// Text is the value as text; of a Coding, its code.
	Text []byte

	// Coding is all of a Coding, as JSON; nil for another value.
	Coding []byte

	// Member is the name of value[x], such as valueCode.
	Member string
}

// AppendJSON appends the value as JSON.
func (v *Value) AppendJSON(dst []byte) []byte {
	switch v.Member {
	case "valueCoding":
		return append(dst, v.Coding...)
	case "valueInteger", "valueDecimal", "valueBoolean":
		return append(dst, v.Text...)
	}
	return fhirjson.AppendString(dst, v.Text)
}

// Flags summarize a concept.
type Flags uint8

// The flags.
const (
	FlagAbstract     Flags = 1 << iota // property notSelectable is true
	FlagInactive                       // property inactive is true, or status is retired or inactive
	FlagDeprecated                     // status is deprecated, or deprecated is true or has a date
	FlagStatus                         // has a status that is not active
	FlagDesignated                     // has designations
	FlagExtended                       // has extensions
	FlagUserAssigned                   // property user-assigned is true: what it means, and so its display, is for users to say
)

// ToldFlags are those that say something about the concept itself.
const ToldFlags = FlagAbstract | FlagInactive | FlagDeprecated | FlagStatus

// EqualFold compares codes ignoring case.
func EqualFold(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	for len(a) > 0 && len(b) > 0 {
		r, n := utf8.DecodeRune(a)
		s, m := utf8.DecodeRune(b)
		if textindex.FoldCase(r) != textindex.FoldCase(s) {
			return false
		}
		a, b = a[n:], b[m:]
	}
	return len(a) == len(b)
}
