// Package loinc reads LOINC from the releases of Regenstrief Institute: a zip archive such as Loinc_2.82.zip, or the folder with
// its files.
//
//	csv.go      records, columns and codes of a file; errors with file and line
//	load.go     the files of a release
//	files.go    the content of each kind of file
//	links.go    relationships between concepts
//
//	system.go   System: a version of LOINC; properties for $lookup
//	filters.go  filters
//	implied.go  registration; implicit value sets
//
// Concepts are numbered in this order: terms, parts, answer lists with their answers, groups. A [System] consists of a table with
// codes, names, texts and hierarchy, like any other code system, and of the links between its concepts.
package loinc
