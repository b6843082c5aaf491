// Package boltstore keeps the entries of a [store.Store] in a file, so that they survive a
// restart. It adds lifetimes and a limit to go.etcd.io/bbolt.
//
// The file has three buckets:
//
//	entries   key                 →  expiry, value
//	expiries  expiry, key         →  nothing: the entries in the order of their end
//	count     "entries"           →  how many there are
//
//	store.go        the store, its steps and backup; concurrent writes share an fsync
//	transaction.go  reads and changes entries
//	openfile.go     reads the whole file before it is used; turns faults of a file in use into errors, where bbolt would panic
//
// There is no goroutine: each write removes some expired entries.
//
// One kind of damage is not detected: bbolt follows a branch page whose first child is a page above it until the process
// runs out of memory. A page header that is not intact ends that, so only a changed page number does it.
package boltstore
