// Package replica keeps in this process what most requests read of a store that several
// gateways share, so that they need no round trip.
//
//	replica.go   [Replica], a [store.Store]: what it answers itself, and what the store answers
//	change.go    changes made here
//	follow.go    changes that the store announces
//	mirror.go    all entries of some kinds
//	ask.go       questions to the store, and what is kept of its answers
//
// The store announces changes of some kinds of keys. Of mirrored kinds the replica holds all
// entries, and so knows too what does not exist. Of cached kinds it keeps what was read
// lately, until a change is announced. Both count only while the replica has heard from the
// store within the maximum lag; after that, it asks the store for each entry.
//
// Reading an entry here returns what it was up to the maximum lag ago, but shows at least what
// this process changed itself. What must be certain is read by [Replica.Do].
package replica
