// Package searchparam holds the search parameters of FHIR R4 and of a site, and decides whether a resource matches one. It is for the
// constraints of SMART scopes, such as patient/Observation.rs?category=laboratory, so it knows no modifiers and no chains.
//
//	parameter.go    Parameter
//	set.go          Set: R4's, from the table r4.tsv (see ../generate/SOURCE.md), and a site's own; those of a type
//	expression.go   Structures.Paths: a FHIRPath expression as paths
//	tokenize.go     its tokens
//	structures.go   the elements of R4's types, elements.tsv
//	match.go        Matches: which kind compares how
//	criterion.go    one of the alternatives of a value; escapes
//	token.go        token
//	reference.go    reference
//	text.go         string
//	uri.go          uri
//	date.go         date
//	quantity.go     number and quantity
//	order.go        Rank: where a resource stands in a sorted search
//	decimal.go      numbers with the range that their digits imply
//	prefix.go       eq, ne, gt, lt, ge, le, sa, eb, ap
//
// In doubt it finds too little rather than too much: what needs knowledge that is not here, such as the units of a
// quantity, does not match, and what cannot be compared at all is an error.
//
// Reference: FHIR R4, Search (https://hl7.org/fhir/R4/search.html).
package searchparam
