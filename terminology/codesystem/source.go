package codesystem

import (
	"io"
	"slices"
)

// Source is a code system that the program knows itself: a grammar, or a table that is read on first use. A package below
// this one has one, and registers it with [Register].
type Source struct {
	// URL identifies the code system, and Name is for people.
	URL, Name string

	// Version is empty if the code system has none.
	Version string

	// CaseSensitive says that codes that differ by case are different.
	CaseSensitive bool

	// Copyright is the notice that the licence of the data wants.
	Copyright string

	// Common is, of a grammar, the canonical of the value set of codes in common use. An expansion of all its codes, or of
	// those that filters choose, is made of these and says that there are more. Without it, there is no such expansion. Of a
	// [List] that takes more codes than it lists, it is where these are from.
	Common string

	// ByValue is the property whose filter chooses the codes of valueSet/[value], a value set that Members' valueSet implies
	// too; empty if it does not.
	ByValue string

	// ReasonIssue says that $validate-code has an issue of its own for why a code is invalid. HL7's test suite demands it of
	// units, and forbids it of languages.
	ReasonIssue bool

	// ValueSets are ValueSet resources that are used with the code system, such as Common, one after the other as JSON, compressed
	// by zstd. They are read at start, before the definitions that replace them.
	ValueSets []byte

	// Content is CodeSystem.content if it is not complete: fragment; or [StandIn].
	Content string

	// Edition is, of a [StandIn], a version beside its own that it answers for: that by which the latest of an edition is
	// asked for. Default: none.
	Edition string

	// Members are other members of the CodeSystem but concept, as a JSON object: title, publisher, valueSet,
	// hierarchyMeaning, property and so on. They are read at start.
	Members string

	// System is its concepts.
	System System
}

// StandIn is the content of a fragment without the hierarchy and most of the names. It says what a code is where nobody
// knows more, and not which codes there are.
const StandIn = "stand-in"

var registered []Source

// Register adds code systems that libraries with the built-in definitions know. Packages call it from init, so that a
// program has the code systems whose packages it imports.
func Register(sources ...Source) { registered = append(registered, sources...) }

// Registered returns the registered code systems, in the order of their registration.
func Registered() []Source { return slices.Clone(registered) }

// FileFormat is a format in which the codes of a code system are published, such as the order files of ICD-10-CM. The command
// fhir-convert converts a file of it to a CodeSystem resource.
type FileFormat struct {
	// Name is the name of the format, as in icd10cm.
	Name string

	// Publisher publishes the files, such as the CMS.
	Publisher string

	// File is a short description of the input file, and Help explains where to get it.
	File, Help string

	// Convert writes the CodeSystem of a file, of a version such as 2026, as JSON.
	Convert func(out io.Writer, file io.Reader, version string) error
}

var formats []FileFormat

// RegisterFormats adds formats. Packages call it from init.
func RegisterFormats(list ...FileFormat) { formats = append(formats, list...) }

// FileFormats returns the registered formats, in the order of their registration.
func FileFormats() []FileFormat { return slices.Clone(formats) }
