// Package codesystem holds the concepts of code systems behind one interface, [System]: the operations of a terminology
// service find codes in it, show them, follow its hierarchy and search it, however it keeps its concepts. The package
// knows neither value sets nor requests, and of a CodeSystem resource only the concepts.
//
//	system.go         System: what operations ask
//	text.go           displays and designations, and which of them to show (languages.go)
//	property.go       properties and their values; flags.go, extension.go: what else there is of a concept
//
// The concepts of a CodeSystem resource are a [Table], flat arrays without pointers:
//
//	CodeSystem.concept ──► Builder ──► Table
//	   tokens               builder.go                    table.go: concepts.go (codes by codeindex.go), rows.go, texts.go
//	                        conceptreader.go, links.go    relation.go: the hierarchy
//	                        propertybuilder.go            property.go, status.go, tablejson.go
//
// A search index is built for each list of languages asked for (searchindexes.go, corpus.go).
package codesystem
