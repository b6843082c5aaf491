// Package terminology expands FHIR R4 value sets: it loads definitions ([Load]), expands a ValueSet's
// compose into codes, and answers ValueSet/$expand over HTTP ([Handler]). It knows nothing of the server
// around it, keeps no state but what it has loaded, and imports nothing else of this module.
//
//	core/r4.ndjson.zst   *.json   *.tgz            Load: source.go, core.go
//	          └────────────┴────────┘
//	                       │ tokens                reader.go, resource.go
//	     codeSystem ◄──────┴──────► valueSet       codesystembuilder.go, valueset.go
//	          └────────────┬────────┘
//	                    Library                    library.go: by url and version
//	                       │ compose               compose.go, conceptfilter.go, codeset.go
//	                   expansion                   expansion.go, remembered in cache.go
//	                       │ filter                search.go, index.go, ranking.go, scan.go
//	                       │ offset, count         parameters.go
//	                    answer                     answer.go, handler.go
//
// # Definitions
//
// Loaded are CodeSystem and ValueSet resources; others are passed over. Of two with the same url and
// version the one that was loaded later counts, the core being first. Several versions stand side by
// side; a reference without a version means the latest of them, in the order of semantic versioning, and
// a code system with concepts goes before one without. Where one of two has no version, or one version is
// a date and the other is not, the one that was loaded later counts.
//
// A code system's concepts are flat arrays without pointers, filled from a stream of tokens. The
// hierarchy comes from nesting and from the properties parent and child. Definitions and designations of
// concepts are not loaded, since no answer holds them.
//
// # Expansion
//
// As R4 §4.9.5 has it: includes are united and excludes taken away; within one include, its system (as
// restricted by concept or filter) and each of its value sets must all have the code. The order is that
// of the includes, and within one that of the code system or of the list. A code is there once, whatever
// the versions of its code system. The answer is flat: no contains within contains.
//
// An expansion is whole, or an error says what is missing ([ErrIncomplete]):
//
//   - A system or filter needs the code system to be here, in the version that is named if one is. Content
//     not-present or supplement is not enough. With content fragment or example the expansion is made of
//     the part that is there, and says so: extension valueset-unclosed, and parameter used-fragment or
//     used-example.
//   - Listed concepts need no code system. Where it is here and complete, a code that it does not have is
//     no code, and is left out; its display is the value set's own, if that gives one.
//   - A filter needs an operator of R4, or child-of, on a property that the code system has: concept,
//     code, display, parent, child, one that it declares, or one that a concept in it has. The concept that
//     a hierarchical filter names must exist. A regex is one of Go's, and must match the whole value.
//   - A concept is abstract by its property notSelectable; it is inactive by its property inactive, or by
//     a status of retired or inactive. With compose.inactive false, inactive ones are left out. A code
//     whose code system is not here counts as active.
//   - Contained code systems and value sets are not used, and a stored expansion is not either.
//
// # The filter parameter
//
// What it finds and in which order is [TextFilterRule], explained in docs/search.md. Concepts are found by
// an index of their code system (index.go), one for each language that is asked for, or, where an
// expansion has few of them, one by one (scan.go); both find the same, which tests make sure of.
//
// # Other parameters
//
// Parameters that are about how codes are shown (displayLanguage, includeDesignations, designation,
// includeDefinition, excludeNested, excludePostCoordinated, contextDirection and any that R4 does not
// know) are ignored, and so do not appear in expansion.parameter. Those that would change which codes
// are right (activeOnly, excludeNotForUI, valueSetVersion, date, context, valueSet, exclude-system,
// system-version, check-system-version, force-system-version) are refused with 422 not-supported
// ([ErrUnsupported]), unless they ask for what is done anyway (activeOnly=false, excludeNotForUI=false).
//
// # Answers
//
// The same question to the same library has the same answer, to the byte: the identifier is made from
// the content, and the timestamp is when the library was loaded. Failures are returned as [Error] and
// left to the caller to write.
package terminology
