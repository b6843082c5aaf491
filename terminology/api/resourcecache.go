package api

import (
	"cmp"
	"crypto/sha256"
	"slices"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/boundedcache"
	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/budget"
)

// resourceCache keeps libraries with the resources that requests sent under a cache-id.
type resourceCache struct {
	most  int64 // bytes of JSON; their libraries take several times as much. Default: 16 MiB
	mu    sync.Mutex
	items boundedcache.Cache[[sha256.Size]byte, *remembered]
}

// remembered is what was sent under one cache-id.
type remembered struct {
	resources []jsontext.Value
	known     map[[sha256.Size]byte]bool // hashes of the resources
	laid
	size int64
}

// laid is a library with what was sent, over another.
type laid struct{ base, library *terminology.Library }

const maxCacheIDs = 200

// library returns a library with everything sent under a key so far.
func (c *resourceCache) library(base *terminology.Library, key [sha256.Size]byte, sent []jsontext.Value, b *budget.Budget) (*terminology.Library, error) {
	for {
		item, known, fresh := c.look(key, sent)
		if len(fresh) == 0 && known.library != nil && known.base == base {
			return known.library, nil
		}
		resources := append(slices.Clip(item.resources), fresh...)
		if err := b.Read(sizeOf(resources)); err != nil {
			return nil, err
		}
		library, err := base.With(resources...) // without the lock
		if err != nil || c.add(key, item, known, laid{base, library}, fresh) {
			return library, err
		}
	}
}

// look returns what is remembered under a key, its current library, and which of the resources are new.
func (c *resourceCache) look(key [sha256.Size]byte, sent []jsontext.Value) (item *remembered, current laid, fresh []jsontext.Value) {
	c.mu.Lock()
	defer c.mu.Unlock()
	item, found := c.items.Get(key)
	if !found {
		item = &remembered{known: make(map[[sha256.Size]byte]bool)}
	}
	fresh = slices.DeleteFunc(slices.Clone(sent), func(resource jsontext.Value) bool { return item.known[sha256.Sum256(resource)] })
	return item, item.laid, fresh
}

// add adds resources to an item, with the library that holds them. It reports false if another request added some
// meanwhile. What exceeds the limit is not remembered.
func (c *resourceCache) add(key [sha256.Size]byte, item *remembered, known, now laid, fresh []jsontext.Value) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if held, found := c.items.Get(key); item.laid != known || found && held != item {
		return false
	}
	size, limit := int64(sizeOf(fresh)), cmp.Or(c.most, 16<<20)
	if item.size+size > limit {
		return true
	}
	for _, resource := range fresh {
		item.known[sha256.Sum256(resource)] = true
	}
	item.resources = append(slices.Clip(item.resources), fresh...)
	item.laid, item.size = now, item.size+size
	c.items.MaxEntries, c.items.MaxCost = maxCacheIDs, limit
	c.items.Put(key, item, item.size)
	return true
}

func sizeOf(resources []jsontext.Value) (size int) {
	for _, resource := range resources {
		size += len(resource)
	}
	return size
}
