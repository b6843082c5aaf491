// Package codesystem defines how terminology operations access the concepts of a code system, regardless of how they are
// stored. It is independent of value sets and requests.
//
//	system.go         System with its six required methods, the optional interfaces, and Concepts: a System with
//	                    its optional interfaces
//	source.go         Source, and the registered sources
//	text.go           displays and designations; languages.go: selection by language
//	conceptreader.go  JSON of concepts, common to code systems and value sets
//
// Each built-in source is a package below this one. The concepts of CodeSystem resources are in terminology/internal/table.
// Package bcp47 is an example of a source: a System, optional interfaces, and a registered [Source]. A System that is a [List]
// can be expanded and searched. A search reads all displays unless the System is also [Searchable].
package codesystem
