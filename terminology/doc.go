// Package terminology implements a FHIR R4 terminology service. [Load] reads definitions into a [Library], and
// [Library.Expand] expands value sets. Package api serves HTTP requests. No package of this module imports the gateway.
//
// Code systems that are not files (codesystem/ucum and others) and operations other than $expand (operation/lookup and
// others) register themselves; package standard imports all of them. To remove one, delete its folder and that import.
//
// # Files
//
//	library.go       Library: $expand, overlays; checks weights
//	capabilities.go  TerminologyCapabilities
//	watch.go         reloads changed files and replaces the library
//	fetched.go       fetches missing definitions from a [Source], adds them to the library and keeps them up to date
//
// Lower-level packages: definitions reads and finds resources; compose evaluates value sets; expansion pages and writes
// them; codesystem and textindex store and search concepts; outcome, budget and parameters are shared. Higher-level
// packages: api, and dispatch, which calls other servers (remote) and caches their responses (cache).
//
// [outcome.Error.Missing] contains the missing definitions, for callers that can use another server.
package terminology
