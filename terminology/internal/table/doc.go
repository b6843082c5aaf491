// Package table holds the concepts of a CodeSystem resource as flat arrays without pointers.
//
//	CodeSystem.concept ──► Builder ──► Table
//	   tokens               builder.go                  table.go: concepts.go (codes by codeindex.go), rows.go, values.go
//	                        source.go                   relation.go: the hierarchy; status.go, tablejson.go
//	                        propertybuilder.go          weights.go: how much concepts are used
//
// A search index is built for each list of languages asked for (searchindexes.go, corpus.go).
package table
