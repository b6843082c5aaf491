// Package terminology is a FHIR R4 terminology service. [Load] reads definitions into a [Library], which [Library.Expand] expands
// value sets from. Package api answers requests over HTTP. Nothing here imports the server around it.
//
// Code systems that are no files (codesystem/ucum and so on), and operations other than $expand (operation/lookup and so on),
// register themselves; package standard imports all of them. Each is deleted with its folder and its line there.
//
// # Where things are
//
//	library.go       Library: $expand, and definitions laid over it; checks weights
//	capabilities.go  what TerminologyCapabilities says
//	watch.go         loads changed files again and replaces the library
//	fetched.go       what is missing is fetched from a [Source], added to the library and kept up to date
//
// Below it: definitions reads resources and finds them; compose evaluates value sets, expansion pages and writes them;
// codesystem and textindex hold concepts and search them; outcome, budget and parameters are
// shared by all. Above it: api, and dispatch, which asks other servers (remote) and caches their responses (cache).
//
// [outcome.Error.Missing] names what the library lacks, for a caller that asks another server.
package terminology
