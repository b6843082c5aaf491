// Package requestobject reads the parameters of authorization requests from request objects (OpenID Connect Core §6, RFC 9101):
// JWTs that the client sends by value or, if it registered itself, by reference. Without it, they are refused with
// request_not_supported and request_uri_not_supported, and a client that must send them gets nothing.
//
//	feature.go        the feature, its part of the discovery document, and the option of a client
//	requestobject.go  fetches and verifies a request object, whose parameters replace those of the query
package requestobject
