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
//	image.go         reads the whole file before bbolt opens it
//	damage.go        replaces a damaged file by a copy of what can be read
//	backup.go        copies the file while it is in use
//	openfile.go      turns what happens to a file in use into errors, where bbolt would panic
//
// There is no goroutine: each write removes some expired entries.
//
// Why image.go reads bbolt's file format itself: bbolt's own check (bbolt.Tx.Check, and a walk with its cursors) trusts
// the pages that it follows. Where one byte has a branch page lead back to itself, Check recurses until the stack
// overflows, which ends the process, and a cursor takes memory without end; a fault in Check's own goroutine cannot be
// recovered from here. bbolt's tools for repairs are in internal packages.
package boltstore
