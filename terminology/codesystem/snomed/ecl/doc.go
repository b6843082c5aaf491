// Package ecl parses and evaluates the SNOMED CT Expression Constraint Language (ECL), version 2.3, in its brief and long syntax.
//
//	content.go   Content: what the evaluator reads of an edition
//	ast.go       the syntax tree and its canonical text
package ecl
