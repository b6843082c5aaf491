// Package message contains the types that the enforcing packages share: calls, responses, Bundles and rejections.
//
//	call.go     a request: the client's, an entry of a bundle, or one of the gateway; the formats that a client accepts
//	answer.go   a response, buffered until it is judged
//	bundle.go   a Bundle with resources stored as text; its links, public addresses, references
//	refusal.go  rejections, including the FHIR server's issues that concern the client's input
//
// The package imports package access for rejections that contain the missing scopes, but sends no requests and judges nothing.
package message
