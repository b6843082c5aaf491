// Package ecl parses and evaluates the SNOMED CT Expression Constraint Language (ECL), version 2.3, in its brief and long syntax.
//
//	parser.go           Parse: expressions and concept references; parserefinement.go: attributes; parsefilter.go: filters
//	scanner.go          tokens and the canonical text
//	ast.go              Expression: the syntax tree and the canonical text
//	content.go          Content: the interface to an edition
//	evaluate.go         Evaluator: operators, hierarchy and history; refine.go: attributes, groups and cardinalities
//	filter.go, term.go  filters of concepts and descriptions; members.go: members of reference sets and their filters
//	cache.go            results by canonical text
//
// Specification: https://docs.snomed.org/snomed-ct-specifications/snomed-ct-expression-constraint-language
package ecl
