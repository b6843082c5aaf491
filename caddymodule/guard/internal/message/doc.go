// Package message is the vocabulary of all who enforce: a request and an answer in parts, a Bundle, and the refusals.
//
//	call.go        a request in parts: the client's, an entry of a bundle, or one of ours
//	answer.go      an answer that is held until it is judged
//	held.go        as the next handler writes it, as far as it is admitted
//	address.go     and as clients know what it names
//	bundle.go      a Bundle, of which the resources stay text, and as text again
//	links.go       its links
//	quoted.go      strings as JSON
//	references.go  what a resource refers to
//	accept.go      the formats that a client takes
//	refusal.go     the errors in place of an answer
//	issues.go      with what the FHIR server says
//	reason.go      as far as that is about what the client has sent
//
// It imports what grants are, for refusals that name the scopes that lack, and asks and judges nothing.
package message
