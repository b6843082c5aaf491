package codesystem

import (
	"github.com/caddy-fhir/caddy-fhir/terminology/bitset"
	"github.com/caddy-fhir/caddy-fhir/terminology/textindex"
)

// System is the concepts of a code system. It numbers them from 0 in the order of the definition, a parent before
// its children; the numbers mean nothing outside of it. It may be used by any number of goroutines, and the bytes and
// lists that it returns must not be changed.
//
// spend, where a method takes it, pays for steps of some fifty nanoseconds; the method fails where it does.
type System interface {
	// Len returns the number of concepts.
	Len() int

	// Locate finds a concept by its code: as it is written, or, where the code system says that case does not
	// matter, in any case.
	Locate(code []byte) (concept uint32, ok bool)

	// Concept returns a concept's code, display and flags at once, for those who write many concepts.
	Concept(concept uint32) (code, display []byte, flags Flags)

	// Code returns a concept's code.
	Code(concept uint32) []byte

	// Display returns a concept's display, or nil.
	Display(concept uint32) []byte

	// Definition returns a concept's definition, or nil.
	Definition(concept uint32) []byte

	// Flags returns what is known of a concept at a glance.
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

	// Above returns all concepts above one, which is among them only where the hierarchy has a cycle.
	Above(concept uint32, spend func(steps int) error) (bitset.Set, error)

	// Below returns all concepts below one, which is among them only where the hierarchy has a cycle.
	Below(concept uint32, spend func(steps int) error) (bitset.Set, error)

	// AppendConcepts appends the member concept of the CodeSystem, or nothing where the concepts cannot be listed.
	AppendConcepts(dst []byte) []byte

	// SearchIndex returns the index that finds concepts by their texts in a list of languages, as
	// [ParseLanguages] reads it, or in the code system's own where it is empty.
	SearchIndex(languages string) *textindex.Index
}
