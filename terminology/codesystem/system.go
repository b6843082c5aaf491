package codesystem

import (
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/bitset"
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
