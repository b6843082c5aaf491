// Package terminology is a FHIR R4 terminology service: it loads definitions ([Load]), expands a ValueSet's
// compose into codes ([Library.Expand]), and answers ValueSet/$expand and its sister operations over HTTP
// ([Handler]), which reads a request into a [Query], asks the library, and writes what it says. It knows
// nothing of the server around it, keeps no state but what it has loaded or fetched and what requests leave
// under a cache-id, and imports nothing else of this module but what lies in its own folder.
//
//	core/r4.ndjson.zst   *.json   *.tgz            Load: source.go, core.go
//	          └────────────┴────────┘
//	                       │ tokens                fhirjson, resource.go
//	     codeSystem ◄──────┴──────► valueSet       codesystembuilder.go with package codesystem, valuesetreader.go
//	          └────────────┬────────┘
//	                    Library ◄── tx-resource    library.go, overlay.go
//	                       │ compose               compose.go, include.go, resolve.go, conceptfilter.go
//	                   expansion                   expander.go, codelist.go, tree.go, remembered in cache.go
//	                       │ filter                search.go, textindex
//	     Query ───────► Expansion                  query.go, rules.go, subject.go, expand.go
//	       ▲               │
//	    request         answer                     handler.go, asking.go: input.go, parameters.go ─► answer*.go, write.go
//
// Library is one that stays, or the current one of a [Watch], which loads changed files anew and swaps them in
// whole (watch.go). What it does not hold is missing: [Error.Missing] says what. It can be fetched from a
// [Source] and is then held beside the library (fetched.go, fetchedlibrary.go, fetchedrenewal.go, beside.go), or
// the caller asks somebody else, for which package remote is. An expansion that somebody else made can be
// searched and paged here (whole.go, wholebuilder.go). An answer that says no for lack of a definition is provisional:
// others can be asked for a better one ([Handler.Others]).
//
// The sister operations look at the same arrays. [Library.ValidateCode] (validate.go) takes one coding after the
// other: candidate.go finds where the value set may have it, by membership.go without an expansion, and in the version
// that versionchooser.go chooses; codingvalidator.go judges what was found, with codesystemcheck.go, conceptcheck.go and
// displaychecker.go; note.go and validationresult.go say it. The others are lookup.go, subsumes.go, translate.go (with
// translator.go and dependency.go) and capabilities.go. Each is a method of [Library], with a question and a result that
// are values; validationreader.go, translationreader.go and concepthandler.go read the questions from requests, and
// batch.go those of a batch. What is loaded can be read and searched (published.go, searchset.go), as far as it is
// kept.
//
// # Definitions
//
// Loaded are CodeSystem and ValueSet resources, the bindings of StructureDefinitions, and ConceptMaps; others
// are passed over. Of two with the same url and version the one that was loaded later counts, the core being
// first. Several versions stand side by side; a reference without a version means the latest of them, in the
// order of semantic versioning, and a code system with concepts goes before one without. Where one of two has
// no version, or one version is a date and the other is not, the one that was loaded later counts. A version
// may have wildcards: 1.x, 1.0.x; they mean the latest that matches, but the version * of an include means all that are
// here.
//
// A code system's concepts are flat arrays without pointers, filled from a stream of tokens. The hierarchy
// comes from nesting and from the properties parent and child. A supplement that is a language pack is made
// use of always, any other one where a value set or a request names it.
//
// What a request brings along (tx-resource, valueSet) is laid over the library for that request: overlay.go
// copies two lists of pointers, and everything else is looked up in the library below. It goes before what is
// loaded, whatever its version; what was fetched does not, as it stands beside what is loaded. With a cache-id it is remembered, for the same client.
//
// # Expansion
//
// As R4 §4.9.5 has it: includes are united and excludes taken away; within one include, its system (as
// restricted by concept or filter) and each of its value sets must all have the code. The order is that
// of the includes, and within one that of the code system or of the list; includes of several versions of a
// code system are taken newest first. Where a value set names several versions of a code system, a code is
// another one in each of them, and the version is told; unless versionsMatch is true, or the value set is the
// difference of two versions: then a code is there once, from the newest version.
//
// An expansion is whole, or an error says what is missing ([ErrIncomplete]):
//
//   - A system or filter needs the code system to be here, in the version that is named if one is. Content
//     not-present or supplement is not enough. With content fragment or example the expansion is made of
//     the part that is there, and says so: extension valueset-unclosed, and parameter used-fragment or
//     used-example.
//   - Listed concepts need no code system. Where it is here and complete, a code that it does not have is
//     no code, and is left out; its display is the value set's own, if that gives one. Where it is not here, or not
//     in the version that is named, the codes are taken as they are: parameter warning-unknown-system says so, and
//     $validate-code calls them valid, with a warning.
//   - A filter needs an operator of R4, or child-of or descendent-leaf of R5, on a property that the code
//     system has: concept, code, display, parent, child, one that it declares, or one that a concept in it has. The concept that
//     a hierarchical filter names must exist. A regex is one of Go's, and must match the whole value.
//   - A concept is abstract by its property notSelectable; it is inactive by its property inactive, by a
//     status of retired or inactive, or by the standards status withdrawn. With compose.inactive false,
//     inactive ones are left out. A code whose code system is not here counts as active.
//   - Contained value sets and code systems are used where an include refers to them, by #id or by their own
//     canonical, before what is loaded; from outside, contained value sets are canonical#id. A contained code
//     system without a url has that of its value set with #id. A stored expansion is not used.
//   - Supplements that are named must be here.
//   - A definition with implicit rules, or with a modifier extension anywhere in it, is not used.
//   - Where compose has a lockedDate, code systems without a version count as they were then.
//
// Value sets are also those that code systems imply: CodeSystem.valueSet, and url?fhir_vs, url?fhir_vs=isa/code.
//
// # The filter parameter
//
// What it finds and in which order is [textindex.Rule], explained in docs/search.md. Concepts are found by
// an index of their code system (corpus.go), one for each language that is asked for, or, where an
// expansion has few of them, one by one (package textindex); both find the same, which tests make sure of.
//
// # Other parameters
//
// Implemented are those of [Handler.TerminologyCapabilities]; unknown ones are ignored. A value set may have
// its own, by the extension valueset-expansion-parameter, which count where the request has none. In
// expansion.parameter stands what was asked for, which versions were chosen by a rule, the definitions that
// were used, and warnings about those that are deprecated, withdrawn, retired, experimental or drafts.
//
// Displays are in the language of displayLanguage, of the value set's own parameter, of Accept-Language, or of
// the value set, in this order; each may be a list with weights (RFC 4647 §3.4 lookup, in both directions).
// Where there is none in these languages, the display is the usual one, unless the list has *;q=0. Properties,
// which R4's ValueSet has no place for, are written as the extensions that stand for R5's.
//
// # Answers
//
// The answer to a GET is a list, and has an offset; with excludeNested=false it is a tree, where the codes are from
// one hierarchy and all of them are shown. The answer to a POST is such a tree, unless excludeNested is true, and has
// an offset where there is paging, as R4 has it. No other parameter decides on the form.
//
// With _summary or _elements, a part of the answer is left out, and it is tagged SUBSETTED: of the summary that
// R4 has of a ValueSet, the expansion is no part; count leaves of the expansion its total.
//
// The same question to the same library has the same answer, to the byte: the identifier is made from
// the content, and the timestamp is when the library was loaded. Both make the entity tag, by which a client
// need not be sent again what it has. Large answers are written while they are made.
//
// Failures are returned as [Error] and left to the caller to write: [Error.Issues] is what the
// OperationOutcome holds, and [Error.OperationOutcome] is one. What a request may cost is limited by the
// fields of [Handler] and of [Options].
package terminology
