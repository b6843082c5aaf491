// Package boltstore keeps the entries of an [authorize.Store] in a file, so that
// they outlive a restart: go.etcd.io/bbolt writes them, and this package adds
// lifetimes and a bound.
//
// The file has three buckets:
//
//	entries   key                 →  expiry, value
//	expiries  expiry, key         →  nothing: the entries in the order of their end
//	count     "entries"           →  how many there are
//
// A write that has returned is on the disk. Writes that come while another is
// being written share the next transaction, and so its fsync (write.go). There
// is no goroutine: each write removes some of what has expired.
package boltstore
