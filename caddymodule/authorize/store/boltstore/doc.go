// Package boltstore keeps the entries of a [store.Store] in a file, so that they survive a
// restart. It adds lifetimes and a limit to go.etcd.io/bbolt.
//
// The file has three buckets:
//
//	entries   key                 →  expiry, value
//	expiries  expiry, key         →  nothing: the entries in the order of their end
//	count     "entries"           →  how many there are
//
//	store.go         opens and closes the file; the methods of the store
//	step.go          several calls in one step
//	transaction.go   reads and changes entries
//	write.go         a write that has returned is on disk; concurrent writes share an fsync
//	check.go         reads the whole file before it is used
//	backup.go        copies the file while it is in use
//	openfile.go      turns what happens to a file in use into errors, where bbolt would panic
//
// There is no goroutine: each write removes some expired entries.
//
// One kind of damage is not detected: bbolt follows a branch page whose first child is a page above it until the process
// runs out of memory. A page header that is not intact ends that, so only a changed page number does it.
package boltstore
