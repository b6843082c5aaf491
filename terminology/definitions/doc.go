// Package definitions reads the resources CodeSystem, ValueSet, ConceptMap and StructureDefinition (bindings only) and finds
// them by URL, version and ID. [Load] returns an immutable [Set]. [Set.WithResources] overlays the resources of a request, and
// [Set.Combine] adds fetched resources.
//
// # Files
//
//	load.go            options; turns files, folders, packages and the built-in definitions into token streams; limits on
//	                     unpacked sizes; progress
//	resource.go        reads resources and passes each to its builder:
//	  codesystem.go      CodeSystem, with its concepts in package codesystem
//	  valueset.go        ValueSet
//	  conceptmap.go      ConceptMap
//	set.go             Set; overlays for resources of a request and for fetched resources
//	systemtable.go     finds code systems, their supplements, and contained definitions
//	valuesettable.go   finds value sets, including implicit ones and the bindings of StructureDefinitions
//	definition.go      members that all definitions share
//	version.go         version comparison, wildcards and dates
//	entry.go           an entry of an expansion, with its texts and flags
//	searchlists.go     synonyms and usage weights for the search
//	sources.go         sources: code systems that are not resources
//	release.go         releases of publishers: several files in an archive or folder; what they imply
//
// # Versions
//
// The built-in definitions are loaded first. Resources of other types are skipped. A definition replaces an earlier one with
// the same URL and version. A reference without a version resolves to the latest version by semantic versioning. Code systems
// with concepts are preferred to those without, and loaded code systems to the built-in copies of code systems from the package
// hl7.terminology. If versions cannot be compared (one is missing, or only one is a date), the last one loaded wins. A wildcard
// such as 1.x resolves to the latest matching version. In an include, version * means all versions.
//
// The hierarchy of a code system is built from nesting and from the properties parent and child. Language packs always apply.
// Other supplements apply if a value set or a request lists them.
//
// Resources sent with a request take precedence over loaded ones, regardless of version. Fetched resources do not.
package definitions
