// Package terminology is a FHIR R4 terminology service. [Load] reads definitions into a [Library], whose methods are the
// operations: [Library.Expand], [Library.ValidateCode], [Library.Lookup], [Library.Subsumes] and [Library.Translate].
// [Handler] answers them over HTTP. The package imports nothing of the server around it.
//
// # Where things are
//
// Loading:
//
//	load.go, source.go, core.go      files, folders, packages and the built-in definitions become streams of tokens
//	sources.go                       the code systems that no resource holds: one line each
//	resource.go                      which reads resources and hands each to its builder:
//	  codesystembuilder.go             CodeSystem: concepts in codesystem/table, the rest in codesystem.go
//	  valuesetreader.go                ValueSet: valueset.go
//	  conceptmap.go, profile.go        ConceptMap; the bindings of a StructureDefinition
//	library.go                       Library: systemtable.go, valuesettable.go find definitions by url, version and id
//	version.go, resolve.go           which version a reference means
//	watch.go                         loads changed files again and replaces the library
//
// Expansion, of a [Query] to an [Expansion]:
//
//	query.go, rules.go               the parameters, a value set's own among them
//	valuesetref.go                   which value set is meant
//	expander.go                      its codes (codelist.go), from cache.go or made:
//	  compose.go, include.go           compose, and one include of it
//	  conceptfilter.go, condition.go   filters by hierarchy, and by property
//	search.go, corpus.go             the parameter filter; explanation.go, textindex/explain.go: and why it found what it did
//	textindex/judge.go               the order of search results: how well each matches,
//	textindex/scan.go                and sorting, without an index
//	textindex/queryorder.go          and with one
//	tree.go, designation.go          nesting; which display and designations are shown
//	expand.go                        Library.Expand and Expansion
//
// Validation, of a [Validation] to a [ValidationResult] (validate.go):
//
//	candidate.go, membership.go      which includes may contain the coding, without an expansion
//	versionchooser.go                in which version of the code system
//	codingvalidator.go               what is wrong with it: codesystemcheck.go, conceptcheck.go, displaychecker.go
//	notes.go, validationresult.go    what the result says
//
// The other operations are in lookup.go, subsumes.go, translate.go (translator.go, dependency.go) and capabilities.go.
//
// HTTP, from a request to an answer:
//
//	handler.go, operation.go         one request; its cost is in budget.go
//	input.go, parameters.go          reading $expand; validationreader.go, translationreader.go, concepthandler.go, batch.go
//	overlay.go, resourcecache.go     resources sent with a request, and those kept under its cache-id
//	fetched.go                       what is missing is fetched from a [Source] and combined with the library (combined.go)
//	expansionwriter.go               the ValueSet as JSON: entrywriter.go, extensionwriter.go, expansionparameters.go
//	write.go, format.go, subset.go   streaming and entity tags; JSON and XML; _summary and _elements
//	published.go, searchset.go       read and search of what is loaded
//	error.go, outcome.go             errors, and the OperationOutcome for them
//
// [Error.Missing] names what the library lacks, for a caller that asks another server (package remote). With
// [Handler.Others], an answer that says no for lack of a definition is returned as [Error.Provisional], so that others can
// be asked first. A [Whole] searches and pages an expansion that another server made (whole.go).
//
// # Definitions
//
// CodeSystem, ValueSet, ConceptMap and the bindings of StructureDefinition are loaded, the core first; other resources are
// skipped. A definition replaces an earlier one with the same url and version. A reference without a version means the
// latest by semantic versioning, but a code system with concepts before one without, and one that is loaded before the
// core's copy of what HL7 maintains in its package hl7.terminology. Versions that cannot be compared (one
// is missing, or only one is a date) count in the order of loading. Wildcards, as 1.x or 1.0.x, mean the latest version
// that matches; the version * of an include means all versions.
//
// The hierarchy of a code system comes from nesting and from the properties parent and child. Supplements that are
// language packs are always used, others if a value set or a request names them.
//
// Resources sent with a request (tx-resource, valueSet) form an overlay for that request or, with a cache-id, for later
// ones of the same client. They go before what is loaded, whatever their version. Fetched definitions count as loaded.
//
// # Expansion
//
// R4 §4.9.5: the union of the includes without the excludes; an include has the codes of its system, as restricted by
// concept or filter, that are in all its value sets. Codes come in the order of the includes, and within one in that of
// the code system or list, newest version first. In a value set that names several versions, the same code in two versions
// is two codes, each with its version, unless versionsMatch is true or the value set is the difference of two versions:
// then it is one code, from the newest version.
//
// An expansion is complete, or an error that wraps [ErrIncomplete]:
//
//   - A system or filter needs the code system, in the version named, with content complete, fragment or example. Of the
//     latter two the part that is here is expanded, with the extension valueset-unclosed and the parameter used-fragment
//     or used-example.
//   - Listed concepts need no code system. Codes that a complete one lacks are left out. Without the code system, or that
//     version of it, all codes count: the parameter warning-unknown-system says so, and $validate-code calls them valid,
//     with a warning.
//   - A filter has an operator of R4, or child-of or descendent-leaf of R5 (or, as HL7's convertor writes it into R4, its
//     extension), and a property: concept, code, display,
//     parent, child, or one that the code system declares or a concept has. The concept that a hierarchical filter names
//     must exist. A regex has Go's syntax and must match the whole value.
//   - A concept is abstract by its property notSelectable, and inactive by its property inactive, a status of retired or
//     inactive, or the standards status withdrawn. compose.inactive false leaves inactive ones out. A code whose code
//     system is not here counts as active.
//   - Contained value sets and code systems, by #id or canonical, go before what is loaded. From outside, a contained value
//     set is canonical#id, as is a contained code system without a url. A stored expansion is not used.
//   - Supplements that are named must be here.
//   - A definition with implicit rules other than that convertor's, or with a modifier extension anywhere in it, is not
//     used.
//   - With a lockedDate in compose, code systems without a version count as they were then.
//
// Code systems imply value sets: CodeSystem.valueSet, url?fhir_vs and url?fhir_vs=isa/code.
//
// # Parameters
//
// [textindex.Rule] says what filter finds and in which order; docs/terminology.md explains it. Long runs of a code system's
// concepts are searched by an index for each language, other codes one by one, with the same result. What [Options.Weights]
// says about a value set gives its expansions an order, and so an index, of their own.
//
// [Handler.TerminologyCapabilities] lists what is implemented; other parameters are ignored. A value set's own, in the
// extension valueset-expansion-parameter, count if the request has none. expansion.parameter repeats what was asked for,
// and tells which versions a rule chose, which definitions were used, and which of these are deprecated, withdrawn,
// retired, experimental or drafts.
//
// The language of displays is that of displayLanguage, else of the value set's own parameter, of Accept-Language, or of
// the value set; each may be a list with weights (RFC 4647 §3.4 lookup, in both directions). A concept without a display
// in these languages has its usual one, unless the list has *;q=0. Properties are written as the extensions for R5's.
//
// # Answers
//
// A GET gets a list with an offset, or, with excludeNested=false, a tree, if the codes are of one hierarchy and all of them
// are shown. A POST gets such a tree unless excludeNested is true, and an offset if the answer is a page, as in R4. No
// other parameter changes the form.
//
// _summary and _elements leave parts of the answer out, which is then tagged SUBSETTED. R4's summary of a ValueSet has no
// expansion; _summary=count has its total.
//
// The same request to the same library gets the same bytes: the identifier is made from the content, and the timestamp is
// when the library was loaded. Both make the entity tag. Large answers are written while they are made.
//
// A failure is an [*Error], which the caller writes. The fields of [Handler] and [Options] limit what a request may cost.
package terminology
