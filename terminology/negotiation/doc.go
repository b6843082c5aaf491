// Package negotiation reads the headers by which a client says how an answer is to look (RFC 9110 §12.5), in one way for
// all who answer: if one read them otherwise than another, the same request would have different answers.
//
//	accept.go      Accept and _format: JSON or XML; the elements of a list header, and their weights
//	language.go    Accept-Language, in one spelling
//	xml.go         the codec for XML, if this build has one
package negotiation
