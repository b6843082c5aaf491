// Package boundedcache has a map with a bound: when it is full, the least recently used entry makes room (cache.go).
//
// Why no library: go-cache has no bound. Those that have one count entries alone (golang-lru), or evict later, in goroutines
// of their own, and may refuse what is new (otter, ristretto); here both bounds hold when Put returns, so that they are
// bounds of memory, and what was put last is there, which the guard's and the replica's callers rely on.
package boundedcache
