package codesystem

import (
	"github.com/caddy-fhir/caddy-fhir/terminology/bitset"
	"github.com/caddy-fhir/caddy-fhir/terminology/textindex"
)

// System is the concepts of a code system. They are numbered from 0 in the order of the definition, parents before
// children; the numbers mean nothing outside. A System is safe for concurrent use, and the bytes and lists it returns
// must not be changed.
//
// spend, where a method takes it, pays for steps of some fifty nanoseconds; the method fails if it does.
type System interface {
	// Len returns the number of concepts.
	Len() int

	// Locate finds a concept by its code: exactly, or in any case if the code system ignores it.
	Locate(code []byte) (concept uint32, ok bool)

	// Concept returns a concept's code, display and flags at once.
	Concept(concept uint32) (code, display []byte, flags Flags)

	// Code returns a concept's code.
	Code(concept uint32) []byte

	// Display returns a concept's display, or nil.
	Display(concept uint32) []byte

	// Definition returns a concept's definition, or nil.
	Definition(concept uint32) []byte

	// Flags returns a concept's flags.
	Flags(concept uint32) Flags

	// Status returns why a concept is not simply active, or "".
	Status(concept uint32) string

	// AppendTexts appends the display and the designations of a concept.
	AppendTexts(dst []Text, concept uint32) []Text

	// AppendExtensions appends the extensions of a concept.
	AppendExtensions(dst []Extension, concept uint32) []Extension

	// Properties returns the properties that concepts may have.
	Properties() []Property

	// AppendValues appends the values of all properties of a concept.
	AppendValues(dst []Value, concept uint32) []Value

	// Values calls visit with the values of one of Properties, as text, until visit returns false.
	Values(concept uint32, property int, visit func(text []byte) bool)

	// Parents returns the concepts directly above one.
	Parents(concept uint32) []uint32

	// Children returns the concepts directly below one.
	Children(concept uint32) []uint32

	// Above returns all ancestors of a concept, itself among them only if the hierarchy has a cycle.
	Above(concept uint32, spend func(steps int) error) (bitset.Set, error)

	// Below returns all descendants of a concept, itself among them only if the hierarchy has a cycle.
	Below(concept uint32, spend func(steps int) error) (bitset.Set, error)

	// AppendConcepts appends the member concept of the CodeSystem, or nothing if the concepts cannot be listed.
	AppendConcepts(dst []byte) []byte

	// SearchIndex returns the index that finds concepts by their texts in a list of languages, as [ParseLanguages] reads
	// it, or in the code system's own if it is empty.
	SearchIndex(languages string) *textindex.Index

	// SearchRank returns where a concept comes among others that match a filter equally well; see [textindex.Ranks].
	SearchRank(concept uint32) uint32

	// SearchWeight returns how much a concept is used, which is part of its rank; 0 if that is unknown.
	SearchWeight(concept uint32) float64

	// Language returns the language of the displays; "" if it is unknown.
	Language() string

	// HasLanguage reports whether there are texts in a language, or one that is like it.
	HasLanguage(language string) bool
}
