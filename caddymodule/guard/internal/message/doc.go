// Package message contains the types that the enforcing packages share: calls, responses, Bundles and rejections.
//
//	call.go     a request: the client's, an entry of a bundle, or one of the gateway; the formats that a client accepts
//	answer.go   a response, buffered until it is judged
//	bundle.go   a Bundle with resources that stay text; its links, public addresses, references
//	refusal.go  rejections, with the FHIR server's issues about the client's input
//
// It imports grants for rejections that name the missing scopes, but sends no requests and judges nothing.
package message
