// Package codesystem defines how terminology operations access the concepts of a code system, however they are
// stored. It is independent of value sets and requests.
//
//	system.go         System with its six required methods, the optional interfaces, and Concepts: a System with
//	                    its optional interfaces
//	source.go         Source, and the registered sources
//	text.go           displays and designations; languages.go: selection by language
//	conceptreader.go  JSON of concepts, common to code systems and value sets
//
// Each source is a package below this one. terminology/internal/table has the concepts of CodeSystem resources. Package
// bcp47 shows the parts of a source: a System, optional interfaces, and a registered [Source]. A System that is a
// [List] can be expanded and searched. A search reads all displays unless it is also a [Searchable].
package codesystem
