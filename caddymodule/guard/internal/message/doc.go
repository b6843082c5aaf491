// Package message is the vocabulary of all who enforce: a request and an answer in parts, a Bundle, and the refusals.
//
//	call.go     a request in parts: the client's, an entry of a bundle, or one of ours; the formats that a client takes
//	answer.go   an answer, held as the next handler writes it until it is judged
//	bundle.go   a Bundle, whose resources stay text; its links, the addresses as clients know them, references
//	refusal.go  the errors in place of an answer, with the FHIR server's issues about what the client has sent
//
// It imports what grants are, for refusals that name the scopes that lack, and asks and judges nothing.
package message
