// Package boltstore keeps the entries of an [store.Store] in a file, so that
// they outlive a restart: go.etcd.io/bbolt writes them, and this package adds
// lifetimes and a bound.
//
// The file has three buckets:
//
//	entries   key                 →  expiry, value
//	expiries  expiry, key         →  nothing: the entries in the order of their end
//	count     "entries"           →  how many there are
//
// The file is read from end to end before it is opened (image.go). Of one that is damaged,
// a copy of what can be read takes the place (damage.go), and what happens to a file while
// it is in use is an error, where bbolt would panic or the process would die
// (openfile.go).
//
// A write that has returned is on the disk. Writes that come while another is
// being written share the next transaction, and so its fsync (write.go). There
// is no goroutine: each write removes some of what has expired.
package boltstore
