// Package codesystem says what the concepts of a code system are to the operations of a terminology service, however a
// source keeps them. The package knows neither value sets nor requests.
//
//	system.go         System, the six methods that a source must have, the optional interfaces, and Concepts: a System with
//	                    those that it has
//	source.go         a Source, and the list of them
//	text.go           displays and designations; languages.go: which of them to show
//	conceptreader.go  what concepts of code systems and value sets have in common as JSON
//
// Each source is a package below this one. The concepts of a CodeSystem resource are in terminology/internal/table. Package bcp47 shows
// what another needs: a System, more interfaces if it can do more, and a [Source], which package definitions lists. One that
// is a [List] can be expanded and searched, by reading all its displays unless it is a [Search] too.
package codesystem
