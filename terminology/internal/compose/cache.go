package compose

import (
	"golang.org/x/sync/singleflight"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/boundedcache"
)

// CodeListCache keeps the expansions that were used last. Definitions do not change, so expansions do not expire.
type CodeListCache struct {
	items boundedcache.Cache[string, *CodeList] // at the cost of their size, in entries

	flights singleflight.Group // of expansions being made
}

// NewCodeListCache returns a cache of so many entries.
func NewCodeListCache(limit int) *CodeListCache {
	return &CodeListCache{items: boundedcache.Cache[string, *CodeList]{MaxCost: int64(limit)}}
}

// Limit returns how many entries are kept.
func (c *CodeListCache) Limit() int { return int(c.items.MaxCost) }

func (c *CodeListCache) get(key string) (*CodeList, bool) { return c.items.Get(key) }

// The size of an expansion beside its entries, in entries: a constant, and one for so many bytes of its key, which a client
// may make as long as it likes.
const (
	cachedSteady = 30
	cachedBytes  = 12
)

// put keeps an expansion, unless it alone is larger than the cache.
func (c *CodeListCache) put(key string, x *CodeList) {
	size := len(x.Entries) + cachedSteady + len(key)/cachedBytes
	if x.Shape != nil {
		size += len(x.Entries) * 2 / 3
	}
	if size <= c.Limit() {
		c.items.Put(key, x, int64(size))
	}
}
