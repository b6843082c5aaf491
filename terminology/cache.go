package terminology

import (
	"golang.org/x/sync/singleflight"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/boundedcache"
)

// codeListCache keeps the expansions that were used last. Definitions do not change, so expansions do not expire.
type codeListCache struct {
	items boundedcache.Cache[string, *codeList] // at the cost of their size, in entries

	flights singleflight.Group // of expansions being made
}

func newCodeListCache(limit int) *codeListCache {
	return &codeListCache{items: boundedcache.Cache[string, *codeList]{MaxCost: int64(limit)}}
}

func (c *codeListCache) limit() int { return int(c.items.MaxCost) }

func (c *codeListCache) get(key string) (*codeList, bool) { return c.items.Get(key) }

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
	if size <= c.limit() {
		c.items.Put(key, x, int64(size))
	}
}
