// Package boltstore stores the entries of a [store.Store] in a file, so that they survive a restart. It adds expiry and a size
// limit to go.etcd.io/bbolt.
//
// The file contains three buckets:
//
//	entries   key                 →  expiry, value
//	expiries  expiry, key         →  empty: the entries in order of expiry
//	count     "entries"           →  number of entries
//
//	store.go        the store, its steps and backup; concurrent writes share an fsync
//	transaction.go  reads and modifies entries
//	openfile.go     verification of the file before use; conversion of bbolt panics on a damaged file into errors
//
// There is no background goroutine: each write removes some expired entries.
//
// One kind of damage is not detected: if the first child of a branch page is one of its ancestors, bbolt follows the loop until
// the process runs out of memory. Any damaged page header ends the loop, so this happens only if a page number was altered.
package boltstore
