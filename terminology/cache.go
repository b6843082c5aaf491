package terminology

import (
	"sync"

	"github.com/patrickmn/go-cache"
	"golang.org/x/sync/singleflight"
)

// codeListCache keeps expansions until there is no room for another, and then drops all: making one again takes a few
// milliseconds at most. Definitions do not change, so expansions do not expire.
type codeListCache struct {
	items *cache.Cache
	mu    sync.Mutex
	held  int // size of items, in entries
	limit int

	flights singleflight.Group // of expansions being made
}

func newCodeListCache(limit int) *codeListCache {
	return &codeListCache{items: cache.New(cache.NoExpiration, 0), limit: limit}
}

func (c *codeListCache) get(key string) (*codeList, bool) {
	item, _ := c.items.Get(key)
	x, ok := item.(*codeList)
	return x, ok
}

// The size of an expansion beside its entries, in entries: a constant, and one for so many bytes of its key, which a client
// may make as long as it likes.
const (
	cachedSteady = 30
	cachedBytes  = 12
)

// put keeps an expansion, unless it alone is larger than the cache.
func (c *codeListCache) put(key string, x *codeList) {
	size := len(x.entries) + cachedSteady + len(key)/cachedBytes
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
	if c.items.Add(key, x, cache.NoExpiration) == nil {
		c.held += size
	}
}
