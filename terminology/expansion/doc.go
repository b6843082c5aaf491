// Package expansion answers ValueSet/$expand: [New] makes the [Expansion] that a [Query] asks for, and a [Writer] writes
// it as JSON. A [Whole] searches and pages an expansion that another server made.
//
// # Where things are
//
//	query.go      the parameters, a value set's own among them; _summary and _elements
//	expansion.go  a page of the codes; expansion.identifier; entity tags
//	writer.go     the ValueSet as JSON
//	whole.go      the pages of another server make a Whole, which is searched and paged
//
// # Parameters
//
// [textindex.Rule] says what filter finds and in which order; docs/concepts/search.md explains it. Long runs of a code system's
// concepts are searched by an index for each language, other codes one by one, with the same result. What
// [definitions.Options.Weights] says about a value set gives its expansions an order, and so an index, of their own.
//
// A value set's own parameters, in the extension valueset-expansion-parameter, count if the request has none.
// expansion.parameter repeats what was asked for, and tells which versions a rule chose, which definitions were used, and
// which of these are deprecated, withdrawn, retired, experimental or drafts.
//
// The language of displays is that of displayLanguage, else of the value set's own parameter, of Accept-Language, or of
// the value set; each may be a list with weights (RFC 4647 §3.4 lookup, in both directions). A concept without a display
// in these languages has its usual one, unless the list has *;q=0. Properties are written as the extensions for R5's.
package expansion
