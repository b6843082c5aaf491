// Package boundedcache has a map with a bound, for what may be forgotten: when it is
// full, the least recently used entry makes room (cache.go).
package boundedcache
