package terminology

import (
	"crypto/sha256"
	"slices"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/boundedcache"
)

// resourceCache keeps the libraries with what requests bring along under a cache-id.
type resourceCache struct {
	mu    sync.Mutex
	items boundedcache.Cache[[sha256.Size]byte, *remembered]
}

// remembered is what is known under one cache-id.
type remembered struct {
	resources []jsontext.Value
	known     map[[sha256.Size]byte]bool // of each resource
	library   *Library
	size      int64
}

// maxCacheIDs bounds how many cache-ids are remembered.
const maxCacheIDs = 200

// cacheKey returns the key for a request's cache-id, or false where it has none. It holds the credentials, or the
// principal, as well, so that no client is answered from what another one sent.
func cacheKey(o *operation, id string) (key [sha256.Size]byte, ok bool) {
	if id == "" {
		id = o.Header.Get("X-Cache-Id")
	}
	if id == "" {
		return key, false
	}
	return sha256.Sum256([]byte(id + "\x00" + o.holder())), true
}

// holder identifies the sender of a request, by its credentials or else by the principal.
func (o *operation) holder() string {
	if len(o.Header["Authorization"]) > 0 || o.handler.Principal == nil {
		return o.Header.Get("Authorization")
	}
	return o.handler.Principal(o.Context())
}

// library returns a library with all that was sent under a key, up to now and now.
func (c *resourceCache) library(base *Library, key [sha256.Size]byte, sent []jsontext.Value, limit int64, b *budget) (*Library, error) {
	for {
		item, known, fresh := c.look(key, sent)
		if len(fresh) == 0 && known != nil && known.base == base {
			return known, nil
		}
		resources := append(slices.Clip(item.resources), fresh...)
		if err := b.read(sizeOf(resources)); err != nil {
			return nil, err
		}
		library, err := base.With(resources...) // while others go on
		if err != nil || c.add(key, item, known, library, fresh, limit) {
			return library, err
		}
	}
}

// look returns what is remembered under a key, its library as it is now, and those of the resources that are
// not among it.
func (c *resourceCache) look(key [sha256.Size]byte, sent []jsontext.Value) (item *remembered, library *Library, fresh []jsontext.Value) {
	c.mu.Lock()
	defer c.mu.Unlock()
	item, found := c.items.Get(key)
	if !found {
		item = &remembered{known: make(map[[sha256.Size]byte]bool)}
	}
	return item, item.library, item.fresh(sent)
}

// add adds resources to an item, with the library that holds them, unless another request has added some
// meanwhile; then it reports false. Too much is not remembered.
func (c *resourceCache) add(key [sha256.Size]byte, item *remembered, known, library *Library, fresh []jsontext.Value, limit int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if held, found := c.items.Get(key); item.library != known || found && held != item {
		return false
	}
	size := int64(sizeOf(fresh))
	if item.size+size > limit {
		return true
	}
	for _, resource := range fresh {
		item.known[sha256.Sum256(resource)] = true
	}
	item.resources = append(slices.Clip(item.resources), fresh...)
	item.library, item.size = library, item.size+size
	c.items.MaxEntries, c.items.MaxCost = maxCacheIDs, limit
	c.items.Put(key, item, item.size)
	return true
}

// sizeOf returns how large resources are in all.
func sizeOf(resources []jsontext.Value) (size int) {
	for _, resource := range resources {
		size += len(resource)
	}
	return size
}

// fresh returns those of the resources that are not remembered yet.
func (m *remembered) fresh(sent []jsontext.Value) (fresh []jsontext.Value) {
	for _, resource := range sent {
		if !m.known[sha256.Sum256(resource)] {
			fresh = append(fresh, resource)
		}
	}
	return fresh
}
