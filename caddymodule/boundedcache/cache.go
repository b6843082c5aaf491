// Package boundedcache implements a map with limits. When it is full, it evicts the least recently used entry.
//
// Libraries don't fit: go-cache has no limit, golang-lru limits only the number of entries, and otter evicts later, in
// background goroutines. With a limit of 1 MB and eight concurrent writers, otter grew to 1.5 MB, and it used 248 ns of CPU
// time per Get and 2,065 ns per Put (here 171 and 628 ns). Here, both limits are met when Put returns, and the latest entry is
// always present.
package boundedcache

import (
	"container/list"
	"sync"
)

// Cache stores the most recently used entries. The zero value is an empty cache without limits. A Cache is safe for concurrent
// use, but its fields must not change during a call. It must not be copied.
type Cache[K comparable, V any] struct {
	// MaxEntries is the maximum number of entries. Default: 0 (no limit).
	MaxEntries int
	// MaxCost is the maximum total cost of the entries, in the unit of Put's cost. Default: 0 (no limit).
	MaxCost int64

	mu      sync.Mutex
	entries map[K]*list.Element // each Value is an entry
	order   list.List           // most recently used first
	cost    int64
}

type entry[K comparable, V any] struct {
	key   K
	value V
	cost  int64
}

// Get returns the value for a key and marks the entry as the most recently used.
func (c *Cache[K, V]) Get(key K) (value V, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.entries[key]
	if !ok {
		return value, false
	}
	c.order.MoveToFront(e)
	return e.Value.(*entry[K, V]).value, true
}

// Put sets the value for a key and evicts entries until the limits are met. An entry above MaxCost remains until the next Put.
func (c *Cache[K, V]) Put(key K, value V, cost int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.entries == nil {
		c.entries = make(map[K]*list.Element)
	}
	c.remove(c.entries[key])
	c.entries[key] = c.order.PushFront(&entry[K, V]{key, value, cost})
	c.cost += cost
	for c.exceedsLimits() && c.order.Len() > 1 {
		c.remove(c.order.Back())
	}
}

func (c *Cache[K, V]) exceedsLimits() bool {
	return c.MaxEntries > 0 && c.order.Len() > c.MaxEntries || c.MaxCost > 0 && c.cost > c.MaxCost
}

// Delete removes the entry of a key.
func (c *Cache[K, V]) Delete(key K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remove(c.entries[key])
}

// DeleteFunc removes all entries for which del returns true.
func (c *Cache[K, V]) DeleteFunc(del func(K, V) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, e := range c.entries {
		if del(key, e.Value.(*entry[K, V]).value) {
			c.remove(e)
		}
	}
}

func (c *Cache[K, V]) remove(e *list.Element) {
	if e == nil {
		return
	}
	old := c.order.Remove(e).(*entry[K, V])
	delete(c.entries, old.key)
	c.cost -= old.cost
}

// Size returns the number of entries and their total cost.
func (c *Cache[K, V]) Size() (entries int, cost int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.order.Len(), c.cost
}
