// Package boundedcache has a map with a bound: when it is full, the least recently used entry makes room (cache.go).
//
// Why no library: go-cache has no bound, golang-lru bounds entries alone, and otter evicts later, in goroutines of its own: with
// a bound of 1 MB it held 1.5 MB while eight writers filled it, and Get took 248 ns and Put 2,065 ns of a core (here 171 and
// 628). Here both bounds hold when Put returns, so that they are bounds of memory, and what was put last is there.
package boundedcache
