// Package api serves $expand, and read and search of loaded resources, over HTTP. [Handler] implements them for a
// [terminology.Library]. Other operations are added with [Register].
//
// # Files
//
//	handler.go              Handler: $expand, and the registered operations
//	call.go                 a request: body, parameters, library, fetching of missing definitions, and resources cached
//	                          by cache-id
//	answer.go               streaming and entity tags; JSON and XML
//	published.go            read and search of loaded resources
//	capabilitystatement.go  metadata
//
// # Responses
//
// A GET returns a list with an offset. With excludeNested=false, it returns a tree if the codes form a single hierarchy and the
// response contains all of them. A POST returns such a tree unless excludeNested is true. Its response has an offset only if it
// is a page, as in R4. No other parameter changes the form.
//
// _summary and _elements omit parts of the response, which is then tagged SUBSETTED. R4's summary of a ValueSet omits the
// expansion; _summary=count includes its total.
//
// Identical requests to the same library return identical bytes: the identifier is derived from the content, and the timestamp
// is the load time of the library. The entity tag is derived from both. Large responses are streamed.
//
// Resources sent with a request (tx-resource, valueSet) apply to that request or, with a cache-id, also to later requests of
// the same client. With [Handler.HasOtherServers], a negative result caused by a missing definition becomes
// [outcome.Error.Provisional], so that other servers can be called first. The caller writes errors ([*outcome.Error]).
package api
