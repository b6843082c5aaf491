package terminology

import (
	"sync"

	"github.com/patrickmn/go-cache"
)

// codeListCache remembers expansions. What it holds is bounded by the sum of their entries and keys; when there
// is no room for another, all are forgotten, since making one anew takes a few milliseconds at most.
type codeListCache struct {
	items *cache.Cache
	mu    sync.Mutex
	held  int // entries in items
	limit int
}

// newCodeListCache returns a cache that holds at most limit entries.
func newCodeListCache(limit int) *codeListCache {
	// Definitions do not change, so expansions do not age, and there is nothing to clean up.
	return &codeListCache{items: cache.New(cache.NoExpiration, 0), limit: limit}
}

// get returns the expansion of the value set with the given canonical.
func (c *codeListCache) get(canonical string) (*codeList, bool) {
	item, ok := c.items.Get(canonical)
	if !ok {
		return nil, false
	}
	return item.(*codeList), true
}

// What an expansion takes beside its entries: as much as so many of them, and one for so many bytes of its key, in
// which a client may write what it likes.
const (
	cachedSteady = 30
	cachedBytes  = 12
)

// put remembers an expansion. One that is larger than the cache is not.
func (c *codeListCache) put(canonical string, x *codeList) {
	size := len(x.entries) + cachedSteady + len(canonical)/cachedBytes
	if x.shape != nil {
		size += len(x.entries) * 2 / 3
	}
	if size > c.limit {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held+size > c.limit {
		c.items.Flush()
		c.held = 0
	}
	if c.items.Add(canonical, x, cache.NoExpiration) == nil {
		c.held += size
	}
}
