// Package boundedcache has a map with a bound: when it is full, the least recently used entry makes room (cache.go).
package boundedcache
