package compose

import (
	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/sync/singleflight"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/boundedcache"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
)

// CodeListCache keeps the expansions that were used last. Definitions do not change, so expansions do not expire.
type CodeListCache struct {
	items  boundedcache.Cache[string, *CodeList] // at the cost of their size, in entries
	posted boundedcache.Cache[string, *posted]   // at the cost of their size, in bytes

	flights singleflight.Group // of expansions being made
}

// NewCodeListCache returns a cache of so many entries.
func NewCodeListCache(limit int) *CodeListCache {
	return &CodeListCache{
		items:  boundedcache.Cache[string, *CodeList]{MaxCost: int64(limit)},
		posted: boundedcache.Cache[string, *posted]{MaxCost: int64(limit) * cachedBytes},
	}
}

// posted is a value set from a request, and the overlay that holds it.
type posted struct {
	overlay  *definitions.Set
	valueSet *definitions.ValueSet
}

// inline reads a value set from a request, unless it was read before.
func (c *CodeListCache) inline(l *definitions.Set, resource jsontext.Value) (*definitions.Set, *definitions.ValueSet, error) {
	key := l.Sent.Key(resource)
	if p, ok := c.posted.Get(key); ok {
		return p.overlay, p.valueSet, nil
	}
	p := &posted{overlay: l.Overlay()}
	var err error
	if p.valueSet, err = p.overlay.Inline(resource); err != nil {
		return nil, nil, err
	}
	if size := int64(definitions.OverlaySize(p.overlay)); size <= c.posted.MaxCost {
		c.posted.Put(key, p, size)
	}
	return p.overlay, p.valueSet, nil
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

// put keeps an expansion, and the overlay of so many bytes that it refers to, unless it alone is larger than the cache.
func (c *CodeListCache) put(key string, x *CodeList, overlay int) {
	size := len(x.Entries) + cachedSteady + (len(key)+overlay)/cachedBytes
	if x.Shape != nil {
		size += len(x.Entries) * 2 / 3
	}
	if size <= c.Limit() {
		c.items.Put(key, x, int64(size))
	}
}
