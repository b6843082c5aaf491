// Package message is the vocabulary of all who enforce: a request and an answer in parts, a Bundle, and the refusals.
//
//	call.go     a request in parts: the client's, an entry of a bundle, or one of ours; the formats that a client takes
//	answer.go   an answer, held as the next handler writes it until it is judged
//	bundle.go   a Bundle, of which the resources stay text, and as text again
//	links.go    its links, the addresses as clients know them, and what resources refer to
//	refusal.go  the errors in place of an answer
//	issues.go   with what the FHIR server says, as far as that is about what the client has sent
//
// It imports what grants are, for refusals that name the scopes that lack, and asks and judges nothing.
package message
