// Package ecl parses and evaluates the SNOMED CT Expression Constraint Language (ECL), version 2.3, in its brief and long syntax.
//
//	parser.go           Parse: expressions and concept references; parserefinement.go: attributes; parsefilter.go: filters
//	ast.go              Expression: the syntax tree and the canonical text
//	content.go          Content: what the evaluator reads of an edition
//	evaluate.go         Evaluator: operators, hierarchy and history; refine.go: attributes, groups and cardinalities
//	filter.go, term.go  filters of concepts, descriptions and members of reference sets
//	cache.go            results by canonical text
//
// Specification: https://docs.snomed.org/snomed-ct-specifications/snomed-ct-expression-constraint-language
package ecl
