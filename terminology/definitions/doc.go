// Package definitions reads CodeSystem, ValueSet, ConceptMap and the bindings of StructureDefinition, and finds them by
// url, version and id. [Load] makes a [Set], which does not change; [Set.With] lays the resources of a request over one,
// and [Set.Combine] adds what was fetched.
//
// # Where things are
//
//	load.go            by the options, files, folders, packages and the built-in definitions become streams of tokens; how
//	                     much a file may unpack to, and how far it is read
//	resource.go        reads resources and hands each to its builder:
//	  codesystem.go      CodeSystem, with its concepts in package codesystem
//	  valueset.go        ValueSet
//	  conceptmap.go      ConceptMap
//	set.go             Set; resources sent with a request, and fetched ones, over another Set
//	systemtable.go     finds code systems, their supplements, and contained definitions
//	valuesettable.go   finds value sets, those that code systems imply, and those that a StructureDefinition binds
//	definition.go      what all definitions have in common
//	version.go         which version a reference means, and as of when
//	entry.go           a code of an expansion, with what is said of it
//	searchlists.go     synonyms and weights, which the search uses
//	sources.go         registered code systems
//
// # Versions
//
// The core is loaded first; other types of resources are skipped. A definition replaces an earlier one with the same url
// and version. A reference without a version means the latest by semantic versioning, but a code system with concepts
// before one without, and one that is loaded before the core's copy of what HL7 maintains in its package hl7.terminology.
// Versions that cannot be compared (one is missing, or only one is a date) count in the order of loading. Wildcards, as
// 1.x or 1.0.x, mean the latest version that matches; the version * of an include means all versions.
//
// The hierarchy of a code system comes from nesting and from the properties parent and child. Supplements that are
// language packs are always used, others if a value set or a request names them.
//
// Resources sent with a request go before what is loaded, whatever their version. Fetched definitions count as loaded.
package definitions
