// Package terminology is a FHIR R4 terminology service. [Load] reads definitions into a [Library], whose methods are the
// operations: [Library.Expand], [Library.ValidateCode], [Library.Lookup], [Library.Subsumes] and [Library.Translate].
// Package api answers them over HTTP. Nothing here imports the server around it.
//
// # Where things are
//
//	library.go, load.go              Library: the operations, and definitions laid over it
//	lookup.go, subsumes.go           operations on one concept
//	translate.go, translator.go      $translate; dependency.go: what a translation depends on
//	capabilities.go                  what TerminologyCapabilities says
//	watch.go                         loads changed files again and replaces the library; weightcheck.go: checks weights
//	fetched.go                       what is missing is fetched from a [Source]: fetcheditems.go holds it, fetchedlibrary.go
//	                                   adds it to the library, fetchedrenewal.go keeps it up to date
//
// Below it: definitions reads resources and finds them; compose evaluates value sets, expansion pages and writes them;
// validate is $validate-code; codesystem and textindex hold concepts and search them; outcome, budget and parameters are
// shared by all. Above it: api, and front, which asks other servers (remote) and remembers their answers (cache).
//
// [outcome.Error.Missing] names what the library lacks, for a caller that asks another server.
package terminology
