package codesystem

import (
	"bytes"
	"unicode/utf8"

	"github.com/caddy-fhir/caddy-fhir/terminology/internal/bitset"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"
	"github.com/caddy-fhir/caddy-fhir/terminology/textindex"
)

// Concept identifies a concept of a [System]: by number if the system is a [List], otherwise by code. If a List also accepts
// unlisted codes, those are identified by code.
type Concept struct {
	// Number is the index of the concept in definition order within its System, with parents before children.
	Number uint32

	// Code is the code that [System.Locate] returned; nil if the concept is identified by number.
	Code []byte
}

// ConceptAt returns the concept of a [List] with the given number.
func ConceptAt(number uint32) Concept { return Concept{Number: number} }

// System provides the concepts of a code system. It may implement the optional interfaces below, which [DetectInterfaces]
// detects. A System is safe for concurrent use. Callers must not modify the bytes and lists that its methods return.
type System interface {
	// Locate returns the concept with the given code. It ignores case if the code system does.
	Locate(code []byte) (c Concept, ok bool)

	// Code returns the code of a concept.
	Code(c Concept) []byte

	// Concept returns the code, the display (nil if there is none) and the flags of a concept.
	Concept(c Concept) (code, display []byte, flags Flags)

	// AppendTexts appends the display and designations of a concept.
	AppendTexts(dst []Text, c Concept) []Text

	// AppendValues appends the values of all properties of a concept.
	AppendValues(dst []Value, c Concept) []Value

	// Language returns the language of the displays, or "" if it is unknown.
	Language() string
}

// List is a [System] that numbers its concepts and can list them.
type List interface {
	// Len returns the number of concepts.
	Len() int

	// AppendConcepts appends the JSON member concept after a comma. If there are no concepts, it appends nothing.
	AppendConcepts(dst []byte) []byte
}

// Hierarchy is a [List] with concepts that form a hierarchy.
//
// Methods call spend to charge the budget, in steps of about fifty nanoseconds, and return its error.
type Hierarchy interface {
	// Parents returns the direct parents of a concept.
	Parents(concept uint32) []uint32

	// Children returns the direct children of a concept.
	Children(concept uint32) []uint32

	// Above returns all ancestors of a concept. In a cyclic hierarchy, these may include the concept.
	Above(concept uint32, spend func(steps int) error) (bitset.Set, error)

	// Below returns all descendants of a concept. In a cyclic hierarchy, these may include the concept.
	Below(concept uint32, spend func(steps int) error) (bitset.Set, error)
}

// Filterable is a [System] of concepts with properties that filters can use.
type Filterable interface {
	// Properties returns the declared properties of concepts.
	Properties() []Property

	// Values calls visit with each value of a property as text, until visit returns false. property is an index in Properties.
	Values(c Concept, property int, visit func(text []byte) bool)
}

// Annotations is a [System] of concepts with definitions, statuses or extensions.
type Annotations interface {
	// Definition returns the definition of a concept, or nil.
	Definition(c Concept) []byte

	// Status returns the status of a concept unless it is active, otherwise "".
	Status(c Concept) string

	// AppendExtensions appends the extensions of a concept.
	AppendExtensions(dst []Extension, c Concept) []Extension
}

// Multilingual is a [System] that has texts in several languages.
type Multilingual interface {
	// HasLanguage reports whether there are texts in this or a similar language.
	HasLanguage(language string) bool
}

// FormerTexts is a [System] that knows which texts its concepts had.
type FormerTexts interface {
	// AppendFormerTexts appends the texts of a concept that are no longer in use. $validate-code accepts them with a warning.
	AppendFormerTexts(dst []Text, c Concept) []Text
}

// Searchable is a [List] with a search index.
type Searchable interface {
	// SearchIndex returns the index of concept texts for a list of languages in the format of [ParseLanguages]. An empty list
	// means the language of the code system.
	SearchIndex(languages string) *textindex.Index

	// SearchRank returns the rank of a concept among equally good matches; see [textindex.Ranks].
	SearchRank(concept uint32) uint32

	// SearchWeight returns the usage weight of a concept, which affects its rank; 0 means unknown.
	SearchWeight(concept uint32) float64
}

// CodeExplainer is a [System] that can explain why codes are invalid.
type CodeExplainer interface {
	// InvalidReason returns a message for users about why a code is invalid, or "".
	InvalidReason(code []byte) string
}

// FilterExplainer is a [Filterable] that can explain why concepts do not match filters.
type FilterExplainer interface {
	// Explain returns for users why a concept does not match a filter, or "". property is an index in Properties.
	Explain(c Concept, property int, op, value string) string
}

// FilterReader is a [Filterable] that normalizes filter values, for example to a canonical form.
type FilterReader interface {
	// FilterValue returns the normalized value of a filter, or an error. property is an index in Properties.
	FilterValue(property int, value string) (string, error)
}

// FilterEvaluator is a [List] that evaluates some filters itself, such as those with an expression as their value.
type FilterEvaluator interface {
	// EvaluateFilter returns the concepts that match a filter. ok is false if the filter has its general meaning. It charges
	// the cost with spend, in the steps of [Hierarchy].
	EvaluateFilter(property, op, value string, spend func(steps int) error) (set bitset.Set, ok bool, err error)

	// MatchesFilter is like EvaluateFilter, but for an unlisted concept, which [Concept.Code] identifies, or for the relation of
	// a listed concept to an unlisted one.
	MatchesFilter(c Concept, property, op, value string, spend func(steps int) error) (matches, ok bool, err error)
}

// Converter is a [System] with codes that can be converted to one another, such as units.
type Converter interface {
	// Convert reports whether the concept from can be converted to the concept to (ok) and whether both are equal. factor is
	// the conversion factor, or empty if multiplication is not sufficient.
	Convert(from, to Concept) (factor string, equal, ok bool)
}

// Concepts is a [System] with its optional interfaces. They are detected only once because operations use them for each code.
// List, Searchable and Converter are nil if they are not implemented. The other interfaces then have an empty implementation.
type Concepts struct {
	System

	// List is nil for a grammar.
	List List

	// Searchable is nil if the system has no search index.
	Searchable Searchable

	// Converter is nil if codes cannot be converted.
	Converter Converter

	// Hierarchy and the following interfaces are never nil.
	Hierarchy       Hierarchy
	Filterable      Filterable      // never nil
	FilterReader    FilterReader    // never nil
	FilterExplainer FilterExplainer // never nil
	Annotations     Annotations     // never nil
	Multilingual    Multilingual    // never nil
	CodeExplainer   CodeExplainer   // never nil
	FilterEvaluator FilterEvaluator // never nil
	FormerTexts     FormerTexts     // never nil
}

// DetectInterfaces returns s with its optional interfaces. It does not call any methods of s, because concepts must not be read
// before their first use.
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
	c.FilterEvaluator = interfaceOrEmpty[FilterEvaluator](s, emptySystem{})
	c.FormerTexts = interfaceOrEmpty[FormerTexts](s, emptySystem{})
	return c
}

// interfaceOrEmpty returns s as an I, or the empty implementation other if s does not implement I.
func interfaceOrEmpty[I any](s System, other I) I {
	if i, ok := s.(I); ok {
		return i
	}
	return other
}

// Len returns the number of listed concepts; 0 for a grammar.
func (c *Concepts) Len() int {
	if c.List == nil {
		return 0
	}
	return c.List.Len()
}

// flatHierarchy is a hierarchy in which concepts have neither parents nor children.
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

// emptySystem implements optional interfaces without properties, definitions or explanations.
type emptySystem struct{}

func (emptySystem) Properties() []Property                                  { return nil }
func (emptySystem) Values(Concept, int, func([]byte) bool)                  {}
func (emptySystem) Definition(Concept) []byte                               { return nil }
func (emptySystem) Status(Concept) string                                   { return "" }
func (emptySystem) AppendExtensions(dst []Extension, _ Concept) []Extension { return dst }
func (emptySystem) FilterValue(_ int, value string) (string, error)         { return value, nil }
func (emptySystem) Explain(Concept, int, string, string) string             { return "" }
func (emptySystem) InvalidReason([]byte) string                             { return "" }
func (emptySystem) AppendFormerTexts(dst []Text, _ Concept) []Text          { return dst }

func (emptySystem) MatchesFilter(Concept, string, string, string, func(int) error) (matches, ok bool, err error) {
	return false, false, nil
}

func (emptySystem) EvaluateFilter(string, string, string, func(int) error) (bitset.Set, bool, error) {
	return nil, false, nil
}

// monolingual is a system that only has texts in the language of its displays.
type monolingual struct{ System }

func (m monolingual) HasLanguage(language string) bool {
	return HasLanguage([]string{m.Language()}, language)
}

// Property is a declared property of a code system or a property of a concept.
type Property struct {
	// Code is the code of the property. URI identifies its meaning and may be empty.
	Code, URI string

	// GroupCode is the code of the property that contains the groups of values of this property ([Value].Group), or "".
	GroupCode string
}

// IsStandard reports whether the property is the standard property of FHIR with this name, based on its URI or code. The code
// is sufficient because many code systems declare no URI or a different one.
func (p Property) IsStandard(name string) bool {
	return p.URI == PropertyBase+name || p.Code == name
}

// PropertyBase is the URI prefix of the properties that FHIR defines (R4 §4.8.10).
const PropertyBase = "http://hl7.org/fhir/concept-properties#"

// Value is a property value of a concept.
type Value struct {
	// Property is the property that has the value.
	Property *Property

	// Text is the value as text. For a Coding, it is the code.
	Text []byte

	// Coding is the complete Coding as JSON. It is nil for values of other types.
	Coding []byte

	// Member is the name of the JSON member value[x], such as valueCode.
	Member string

	// Group is the number of the group of values that contains the value, or 0.
	Group uint16
}

// AppendJSON appends the value as JSON, without the member name.
func (v *Value) AppendJSON(dst []byte) []byte {
	switch v.Member {
	case "valueCoding":
		return append(dst, v.Coding...)
	case "valueInteger", "valueDecimal", "valueBoolean":
		return append(dst, v.Text...)
	}
	return fhirjson.AppendString(dst, v.Text)
}

// Flags is a set of flags that describe a concept.
type Flags uint8

// Flags of concepts.
const (
	FlagAbstract        Flags = 1 << iota // property notSelectable is true
	FlagInactive                          // property inactive is true, or status is retired or inactive
	FlagDeprecated                        // status is deprecated, or deprecated is true or has a date
	FlagHasStatus                         // the concept has a status that is not active
	FlagHasDesignations                   // the concept has designations
	FlagHasExtensions                     // the concept has extensions
	FlagUserAssigned                      // property user-assigned is true: users define the meaning and the display
)

// ReportedFlags are the flags that describe the status of a concept, not which data it has.
const ReportedFlags = FlagAbstract | FlagInactive | FlagDeprecated | FlagHasStatus

// EqualFold reports whether two codes are equal if case is ignored.
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
