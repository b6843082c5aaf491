package codesystem

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
