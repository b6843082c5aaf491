// Package expansion implements ValueSet/$expand: [New] returns the [Expansion] for a [Query], and a [Writer] writes
// it as JSON. A [FullExpansion] searches and pages a full expansion of another server.
//
// # Files
//
//	query.go      the parameters, including a value set's own; _summary and _elements
//	expansion.go  a page of codes; expansion.identifier; entity tags
//	writer.go     the ValueSet as JSON
//	whole.go      builds a FullExpansion from the pages of another server; searches and pages it
//
// # Parameters
//
// [textindex.Rule] defines the matches of a filter and their order; docs/concepts/search.md explains it. Long runs of
// concepts of a code system are searched with an index per language, other codes individually, with the same result. If
// [definitions.Options.Weights] has weights for a value set, its expansions have their own order and index.
//
// A value set's own parameters, in the extension valueset-expansion-parameter, are defaults for the request.
// expansion.parameter contains the parameters of the request, the versions selected by rules, the used definitions, and
// warnings about deprecated, withdrawn, retired, experimental and draft definitions.
//
// The language of displays is that of displayLanguage, the value set's own parameter, Accept-Language, or the value
// set, in this order. Each may be a weighted list (RFC 4647 §3.4, in both directions). A concept without a display in
// these languages has its default display, unless the list has *;q=0. Properties are extensions defined for R5.
package expansion
