// Package bundle answers batches and transactions: each entry is a request of its own.
//
//	bundle.go           the entries of a batch, one after the other, or all at once if nothing needs judging
//	submission.go       as the client sends them, each as a call
//	entry.go            answered as a request, and the answer as an entry
//	transaction.go      a transaction: all entries are judged before any is sent, as what they were judged to be
//	part.go             of which each is one part, with references to what others write
//
// References: FHIR R4, RESTful API (http.html#transaction).
package bundle
