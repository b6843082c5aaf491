// Package api answers $expand over HTTP, and read and search of loaded resources, with a [Handler] of a [terminology.Library]. Other
// operations register themselves with [Register].
//
// # Where things are
//
//	handler.go              Handler: $expand, and how operations that are registered are served
//	call.go                 one request: its body and parameters, its library, fetching what that lacks, and resources kept
//	                          under a cache-id
//	answer.go               streaming and entity tags; JSON and XML
//	published.go            read and search of loaded resources
//	capabilitystatement.go  metadata
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
// Resources sent with a request (tx-resource, valueSet) count for that request or, with a cache-id, for later ones of the
// same client. With [Handler.Others], an answer that says no for lack of a definition is returned as
// [outcome.Error.Provisional], so that others can be asked first. A failure is an [*outcome.Error], which the caller writes.
package api
