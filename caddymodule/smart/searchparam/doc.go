// Package searchparam holds the search parameters of FHIR R4 and of a site, and decides whether a resource matches one. It is for the
// constraints of SMART scopes, such as patient/Observation.rs?category=laboratory, so it knows no modifiers and no chains.
//
//	set.go         Set: R4's, from the table r4.tsv (see ../generate/SOURCE.md), and a site's own; Parameter
//	expression.go  Structures.Paths: a FHIRPath expression as paths, by the elements of R4's types, elements.tsv
//	match.go       Matches: which kind of parameter compares how; the criteria of each kind
//	order.go       Rank: where a resource stands in a sorted search
//
// In doubt it finds too little rather than too much: what needs knowledge that is not here, such as the units of a
// quantity, does not match, and what cannot be compared at all is an error.
//
// Reference: FHIR R4, Search (https://hl7.org/fhir/R4/search.html).
package searchparam
