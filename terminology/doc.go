// Package terminology is a FHIR R4 terminology service. [Load] reads definitions into a [Library], whose methods are the
// operations: [Library.Expand], [Library.ValidateCode], [Library.Lookup], [Library.Subsumes] and [Library.Translate].
// [Handler] answers them over HTTP. The package knows nothing of the server around it and imports only what lies in its
// own folder.
//
// # Where things are
//
// Loading:
//
//	load.go, source.go, core.go      files, folders, packages and the built-in definitions become streams of tokens
//	resource.go                      which reads resources and hands each to its builder:
//	  codesystembuilder.go             CodeSystem: concepts in package codesystem, the rest in codesystem.go
//	  valuesetreader.go                ValueSet: valueset.go
//	  conceptmap.go, profile.go        ConceptMap; the bindings of a StructureDefinition
//	library.go                       Library: systemtable.go, valuesettable.go find definitions by url, version and id
//	version.go, resolve.go           which version a reference means
//	watch.go                         loads changed files anew and replaces the library
//
// Expansion, of a [Query] to an [Expansion]:
//
//	query.go, rules.go               the parameters; those that a value set has for itself
//	valuesetref.go                   which value set is meant
//	expander.go                      its codes (codelist.go), from cache.go or made:
//	  compose.go, include.go           compose, and one include of it
//	  conceptfilter.go, condition.go   filters by hierarchy, and by property
//	search.go, corpus.go             the parameter filter
//	textindex/judge.go               the order of search results: how well each matches,
//	textindex/scan.go                and sorting, without an index
//	textindex/queryorder.go          and with one
//	tree.go, designation.go          nesting; which display and designations are shown
//	expand.go                        Library.Expand and Expansion
//
// Validation, of a [Validation] to a [ValidationResult] (validate.go):
//
//	candidate.go, membership.go      which includes may have the coding, without an expansion
//	versionchooser.go                in which version of the code system
//	codingvalidator.go               what is wrong with it: codesystemcheck.go, conceptcheck.go, displaychecker.go
//	notes.go, validationresult.go    what the result says
//
// The other operations are in lookup.go, subsumes.go, translate.go (translator.go, dependency.go) and capabilities.go.
//
// HTTP, from a request to an answer:
//
//	handler.go, operation.go         one request; what it may cost is in budget.go
//	input.go, parameters.go          reading $expand; validationreader.go, translationreader.go, concepthandler.go, batch.go
//	overlay.go, resourcecache.go     what a request brings along, and what is kept under its cache-id
//	fetched.go                       what is missing is fetched from a [Source] and combined with the library (combined.go)
//	expansionwriter.go               the ValueSet as JSON: entrywriter.go, extensionwriter.go, expansionparameters.go
//	write.go, format.go, subset.go   streaming and entity tags; JSON and XML; _summary and _elements
//	published.go, searchset.go       read and search of what is loaded
//	error.go, outcome.go             errors, and the OperationOutcome for them
//
// What the library lacks is named by [Error.Missing], for a caller that asks another server (package remote). Where
// [Handler.Others] is set, an answer that says no for lack of a definition is returned as [Error.Provisional], so that
// others can be asked first. An expansion that another server made can be searched and paged by a [Whole] (whole.go).
//
// # Definitions
//
// CodeSystem, ValueSet, ConceptMap and the bindings of StructureDefinition are loaded; other resources are skipped. A
// definition replaces an earlier one with the same url and version; the core is loaded first. A reference without a
// version means the latest version by semantic versioning, but a code system with concepts before one without. Versions
// that cannot be compared (one is missing, or only one is a date) count in the order of loading. A version with
// wildcards, as 1.x or 1.0.x, means the latest that matches; the version * of an include means all versions.
//
// The hierarchy of a code system comes from nesting and from the properties parent and child. Supplements that are
// language packs are always used, others where a value set or a request names them.
//
// What a request brings along (tx-resource, valueSet) is an overlay over the library for that request, or, with a
// cache-id, for later requests of the same client. It goes before what is loaded, whatever its version. What was fetched
// does not: it counts as if it had been loaded.
//
// # Expansion
//
// R4 §4.9.5: includes are united and excludes taken away; within one include, its system (as restricted by concept or
// filter) and each of its value sets must have the code. Codes come in the order of the includes, and within one in that
// of the code system or list; of several versions of a code system the newest comes first. In a value set that names
// several versions, the same code in two versions is two codes, each with its version, unless versionsMatch is true or
// the value set is the difference of two versions: then the code is there once, from the newest version.
//
// An expansion is complete, or else an error that wraps [ErrIncomplete]:
//
//   - A system or filter needs the code system, in the version that is named. Content not-present or supplement is not
//     enough. Of content fragment or example the part that is here is expanded, with the extension valueset-unclosed and
//     the parameter used-fragment or used-example.
//   - Listed concepts need no code system. If it is here and complete, codes that it does not have are left out. If it
//     is not here, or not in that version, all codes count: the parameter warning-unknown-system says so, and
//     $validate-code calls them valid, with a warning.
//   - A filter has an operator of R4, or child-of or descendent-leaf of R5, and a property of the code system: concept,
//     code, display, parent, child, a declared one, or one that a concept has. The concept that a hierarchical filter
//     names must exist. A regex has Go's syntax and must match the whole value.
//   - A concept is abstract by its property notSelectable, and inactive by its property inactive, a status of retired or
//     inactive, or the standards status withdrawn. With compose.inactive false, inactive ones are left out. A code whose
//     code system is not here counts as active.
//   - Contained value sets and code systems, by #id or by their canonical, go before what is loaded. From outside, a
//     contained value set is canonical#id. A contained code system without a url has the canonical of its value set with
//     #id. A stored expansion is not used.
//   - Supplements that are named must be here.
//   - A definition with implicit rules, or with a modifier extension anywhere in it, is not used.
//   - With a lockedDate in compose, code systems without a version count as they were then.
//
// Code systems imply value sets: CodeSystem.valueSet, url?fhir_vs and url?fhir_vs=isa/code.
//
// # The filter parameter
//
// [textindex.Rule] says what is found, and in which order; docs/search.md explains it. Long runs of a code system's
// concepts are searched by an index of the code system, one for each language, and other codes one by one, with the same
// result.
//
// # Other parameters
//
// [Handler.TerminologyCapabilities] lists what is implemented; other parameters are ignored. A value set's own, in the
// extension valueset-expansion-parameter, count where the request has none. expansion.parameter repeats what was asked
// for, and tells which versions a rule chose, which definitions were used, and which of these are deprecated, withdrawn,
// retired, experimental or drafts.
//
// The language of displays is that of displayLanguage, else of the value set's own parameter, of Accept-Language, or of
// the value set; each may be a list with weights (RFC 4647 §3.4 lookup, in both directions). A concept without a display
// in these languages has its usual one, unless the list has *;q=0. Properties, which R4's ValueSet has no place for, are
// written as the extensions that stand for R5's.
//
// # Answers
//
// The answer to a GET is a list with an offset, or, with excludeNested=false, a tree, if the codes are of one hierarchy
// and all of them are shown. The answer to a POST is such a tree unless excludeNested is true, and has an offset if it is
// a page, as in R4. No other parameter changes the form.
//
// _summary and _elements leave parts of the answer out, which is then tagged SUBSETTED. R4's summary of a ValueSet has no
// expansion; _summary=count has the expansion's total.
//
// The same request to the same library gets the same bytes: the identifier is made from the content, and the timestamp is
// when the library was loaded. Both make the entity tag. Large answers are written while they are made.
//
// Errors are an [*Error] and left to the caller to write, as [Error.OperationOutcome]. The fields of [Handler] and
// [Options] limit what a request may cost.
package terminology
