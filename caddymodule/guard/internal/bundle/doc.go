// Package bundle answers batches and transactions: each entry is a request of its own.
//
//	bundles.go               an entry, answered as a request
//	batch.go                 the entries of a batch, one after the other
//	submission.go              as the client sends them
//	entrycall.go               an entry as a call
//	entryanswer.go             an answer as an entry
//	whole.go                 all of them at once, if nothing needs judging
//	transaction.go           a transaction: all entries are judged before any is sent
//	part.go                    of which each is one part
//	transactionreference.go    with references to what other entries write
//	transactionanswer.go       and sent as what they were judged to be
//
// References: FHIR R4, RESTful API (http.html#transaction).
package bundle
