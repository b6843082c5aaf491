// Package searchparam contains the search parameters of FHIR R4 and of a site, and determines whether a resource matches one.
// It is for the constraints of SMART scopes, such as patient/Observation.rs?category=laboratory, so it supports no modifiers or
// chains.
//
//	set.go         Set: R4's parameters, from the table r4.tsv (see ../generate/SOURCE.md), and those of a site; Parameter
//	expression.go  Structures.Paths: a FHIRPath expression as paths, by the elements of R4's types, elements.tsv
//	match.go       Matches: the criteria and comparison of each kind of parameter
//	order.go       Rank: the position of a resource in a sorted search
//
// When in doubt, it matches too little rather than too much: a comparison that requires additional knowledge, such as the
// conversion of units, does not match, and a parameter that cannot be compared at all is an error.
//
// Reference: FHIR R4, Search (https://hl7.org/fhir/R4/search.html).
package searchparam
