// Package definitions reads CodeSystem, ValueSet, ConceptMap and the bindings of StructureDefinition, and finds them by
// url, version and id. [Load] makes a [Set], which does not change; [Set.With] lays the resources of a request over one,
// and [Set.Combine] adds what was fetched.
//
// # Where things are
//
//	load.go, source.go, core.go      by the options (options.go), files, folders, packages and the built-in definitions become streams of tokens
//	sourcelimit.go, progress.go      how much a file may unpack to; how far it is read
//	resource.go                      reads resources and hands each to its builder:
//	  codesystembuilder.go             CodeSystem: concepts in package codesystem, the rest in codesystem.go
//	  valuesetreader.go                ValueSet: valueset.go
//	  conceptmap.go, profile.go        ConceptMap; the bindings of a StructureDefinition
//	set.go                           Set: systemtable.go and valuesettable.go find definitions
//	definition.go, modifier.go       what all definitions have in common
//	overlay.go, layer.go             resources sent with a request, and fetched ones, over another Set
//	version.go, date.go              which version a reference means, and as of when
//	contained.go, valuesetlookup.go  contained value sets, and those that code systems imply
//	entry.go, designation.go         a code of an expansion, with what is said of it
//	supplements.go                   what supplements refer to
//	synonyms.go, usage.go            lists that the search uses
//	sources.go                       registered code systems
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
