// Package expansion implements ValueSet/$expand. [New] returns the [Expansion] for a [Query], and a [Writer] writes it as JSON.
// A [FullExpansion] searches and pages a full expansion fetched from another server.
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
// [textindex.Rule] defines which concepts match a filter and in which order; docs/concepts/search.md explains it. Long runs of
// concepts of a code system are searched with one index per language, other codes individually, with the same results. If
// [definitions.Options.Weights] has weights for a value set, its expansions have a separate order and index.
//
// Expansion parameters in a value set (extension valueset-expansion-parameter) are defaults for the request.
// expansion.parameter contains the parameters of the request, the versions selected by rules, the definitions that were used,
// and warnings about deprecated, withdrawn, retired, experimental and draft definitions.
//
// The language of displays is specified by displayLanguage, the value set's expansion parameter, Accept-Language, or the
// language of the value set, in this order. The first three may be weighted lists (RFC 4647 §3.4, in both directions). A
// concept without a display in these languages has its default display, unless the list contains *;q=0. Properties are returned
// in the extensions that correspond to R5's elements.
package expansion
