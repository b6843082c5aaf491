package codesystem

import (
	"bytes"
	"unicode/utf8"

	"github.com/caddy-fhir/caddy-fhir/terminology/internal/bitset"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"
	"github.com/caddy-fhir/caddy-fhir/terminology/textindex"
)

// Concept identifies a concept of a [System]: by number if the system is a [List], otherwise by code. A List that also
// accepts unlisted codes identifies those by code.
type Concept struct {
	// Number counts from 0 in definition order, parents before children. It is only meaningful within its System.
	Number uint32

	// Code is the code that [System.Locate] returned.
	Code []byte
}

// ConceptAt returns the concept of a [List] with a number.
func ConceptAt(number uint32) Concept { return Concept{Number: number} }

// System provides the concepts of a code system. It may implement the optional interfaces below, which [DetectInterfaces] detects. A
// System is safe for concurrent use. Callers must not modify the returned bytes and lists.
type System interface {
	// Locate returns the concept with a code, ignoring case if the code system does.
	Locate(code []byte) (c Concept, ok bool)

	// Code returns the code of a concept.
	Code(c Concept) []byte

	// Concept returns the code, display (may be nil) and flags of a concept.
	Concept(c Concept) (code, display []byte, flags Flags)

	// AppendTexts appends the display and designations of a concept.
	AppendTexts(dst []Text, c Concept) []Text

	// AppendValues appends the values of all properties of a concept.
	AppendValues(dst []Value, c Concept) []Value

	// Language returns the language of the displays; "" if it is unknown.
	Language() string
}

// List is a [System] with numbered concepts, which can be listed.
type List interface {
	// Len returns the number of concepts.
	Len() int

	// AppendConcepts appends the JSON member concept with a leading comma, or nothing without concepts.
	AppendConcepts(dst []byte) []byte
}

// Hierarchy is a [List] with a hierarchy of concepts.
//
// spend charges steps of about fifty nanoseconds; methods return its error.
type Hierarchy interface {
	// Parents returns the direct parents of a concept.
	Parents(concept uint32) []uint32

	// Children returns the direct children of a concept.
	Children(concept uint32) []uint32

	// Above returns all ancestors of a concept. In a cyclic hierarchy, they may include the concept.
	Above(concept uint32, spend func(steps int) error) (bitset.Set, error)

	// Below returns all descendants of a concept. In a cyclic hierarchy, they may include the concept.
	Below(concept uint32, spend func(steps int) error) (bitset.Set, error)
}

// Filterable is a [System] with concepts that have properties for filters.
type Filterable interface {
	// Properties returns the declared properties of concepts.
	Properties() []Property

	// Values calls visit with the values of the property with an index in Properties, as text, until visit returns false.
	Values(c Concept, property int, visit func(text []byte) bool)
}

// Annotations is a [System] with definitions, statuses and extensions of concepts.
type Annotations interface {
	// Definition returns the definition of a concept, or nil.
	Definition(c Concept) []byte

	// Status returns the status of a concept other than active, or "".
	Status(c Concept) string

	// AppendExtensions appends the extensions of a concept.
	AppendExtensions(dst []Extension, c Concept) []Extension
}

// Multilingual is a [System] with texts in several languages.
type Multilingual interface {
	// HasLanguage reports whether texts in a language or a similar one exist.
	HasLanguage(language string) bool
}

// Searchable is a [List] with a search index.
type Searchable interface {
	// SearchIndex returns the index of concept texts for a list of languages in the format of [ParseLanguages]. The
	// default is the language of the code system.
	SearchIndex(languages string) *textindex.Index

	// SearchRank returns the rank of a concept among equally good matches; see [textindex.Ranks].
	SearchRank(concept uint32) uint32

	// SearchWeight returns the usage weight of a concept, which affects its rank; 0 means unknown.
	SearchWeight(concept uint32) float64
}

// CodeExplainer is a [System] that explains invalid codes.
type CodeExplainer interface {
	// InvalidReason returns, for users, why a code is invalid, or "".
	InvalidReason(code []byte) string
}

// FilterExplainer is a [Filterable] that explains filter mismatches.
type FilterExplainer interface {
	// Explain returns, for users, why a concept does not match a filter on a property, or "".
	Explain(c Concept, property int, op, value string) string
}

// FilterReader is a [Filterable] that normalizes values of filters, for example to a canonical form.
type FilterReader interface {
	// FilterValue returns the normalized value of a filter on a property, or an error for an invalid value.
	FilterValue(property int, value string) (string, error)
}

// Converter is a [System] with convertible codes, such as units.
type Converter interface {
	// Convert reports whether from can be converted to to, the conversion factor if one suffices, and whether both are
	// equal.
	Convert(from, to Concept) (factor string, equal, ok bool)
}

// Concepts is a [System] with its optional interfaces, detected once because operations use them for each code. List,
// Searchable and Converter are nil if not implemented; the others then have an empty implementation.
type Concepts struct {
	System

	// List is nil for a grammar.
	List List

	// Searchable is nil without a search index.
	Searchable Searchable

	// Converter is nil without conversions.
	Converter Converter

	// The following interfaces are never nil.
	Hierarchy       Hierarchy
	Filterable      Filterable      // never nil
	FilterReader    FilterReader    // never nil
	FilterExplainer FilterExplainer // never nil
	Annotations     Annotations     // never nil
	Multilingual    Multilingual    // never nil
	CodeExplainer   CodeExplainer   // never nil
}

// DetectInterfaces detects the interfaces of a system. It calls no methods, because concepts must not be read before their first use.
func DetectInterfaces(s System) Concepts {
	c := Concepts{System: s}
	c.List, _ = s.(List)
	c.Searchable, _ = s.(Searchable)
	c.Converter, _ = s.(Converter)
	c.Hierarchy = interfaceOrEmpty[Hierarchy](s, flatHierarchy{c.List})
	c.Filterable = interfaceOrEmpty[Filterable](s, emptySystem{})
	c.Annotations = interfaceOrEmpty[Annotations](s, emptySystem{})
	c.Multilingual = interfaceOrEmpty[Multilingual](s, monolingual{s})
	c.FilterReader = interfaceOrEmpty[FilterReader](s, emptySystem{})
	c.FilterExplainer = interfaceOrEmpty[FilterExplainer](s, emptySystem{})
	c.CodeExplainer = interfaceOrEmpty[CodeExplainer](s, emptySystem{})
	return c
}

// interfaceOrEmpty returns an interface of a system, or its empty implementation.
func interfaceOrEmpty[I any](s System, other I) I {
	if i, ok := s.(I); ok {
		return i
	}
	return other
}

// Len returns the number of listed concepts.
func (c *Concepts) Len() int {
	if c.List == nil {
		return 0
	}
	return c.List.Len()
}

// flatHierarchy is an empty hierarchy.
type flatHierarchy struct{ list List }

func (flatHierarchy) Parents(uint32) []uint32  { return nil }
func (flatHierarchy) Children(uint32) []uint32 { return nil }
func (f flatHierarchy) Above(uint32, func(int) error) (bitset.Set, error) {
	c := Concepts{List: f.list}
	return bitset.New(max(1, c.Len())), nil
}

func (f flatHierarchy) Below(concept uint32, _ func(int) error) (bitset.Set, error) {
	return f.Above(concept, nil)
}

// emptySystem implements interfaces without properties, definitions and explanations.
type emptySystem struct{}

func (emptySystem) Properties() []Property                                  { return nil }
func (emptySystem) Values(Concept, int, func([]byte) bool)                  {}
func (emptySystem) Definition(Concept) []byte                               { return nil }
func (emptySystem) Status(Concept) string                                   { return "" }
func (emptySystem) AppendExtensions(dst []Extension, _ Concept) []Extension { return dst }
func (emptySystem) FilterValue(_ int, value string) (string, error)         { return value, nil }
func (emptySystem) Explain(Concept, int, string, string) string             { return "" }
func (emptySystem) InvalidReason([]byte) string                             { return "" }

// monolingual has only texts in the language of its displays.
type monolingual struct{ System }

// HasLanguage implements [Multilingual].
func (m monolingual) HasLanguage(language string) bool {
	return HasLanguage([]string{m.Language()}, language)
}

// Property is a declared property of a code system or a property of a concept.
type Property struct {
	// Code is the code of the property. URI identifies its meaning; it may be empty.
	Code, URI string
}

// IsStandard reports whether the property is a standard property of FHIR, identified by URI or code, because many code systems
// declare no or a different URI.
func (p Property) IsStandard(name string) bool {
	return p.URI == PropertyBase+name || p.Code == name
}

// PropertyBase is the URI prefix of the properties that FHIR defines (R4 §4.8.10).
const PropertyBase = "http://hl7.org/fhir/concept-properties#"

// Value is a property value of a concept.
type Value struct {
	// Property is the property.
	Property *Property

	// Text is the value as text; the code of a Coding.
	Text []byte

	// Coding is the entire Coding as JSON; nil for other types.
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

// Flags summarizes a concept.
type Flags uint8

// Flags of concepts.
const (
	FlagAbstract        Flags = 1 << iota // property notSelectable is true
	FlagInactive                          // property inactive is true, or status is retired or inactive
	FlagDeprecated                        // status is deprecated, or deprecated is true or has a date
	FlagHasStatus                         // has a status that is not active
	FlagHasDesignations                   // has designations
	FlagHasExtensions                     // has extensions
	FlagUserAssigned                      // property user-assigned is true: users define meaning and display
)

// ReportedFlags are the flags about the concept itself.
const ReportedFlags = FlagAbstract | FlagInactive | FlagDeprecated | FlagHasStatus

// EqualFold reports whether codes are equal ignoring case.
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
