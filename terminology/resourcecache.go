package terminology

import (
	"crypto/sha256"
	"net/http"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
)

// resourceCache remembers the definitions that clients brought along under a cache-id, so that they need not
// send them again. What it holds is bounded; who has not asked for longest is forgotten first. The zero value
// is ready to be used.
type resourceCache struct {
	mu    sync.Mutex
	items map[[sha256.Size]byte]*remembered
	turn  uint64 // counts requests
	held  int64  // bytes of the resources
}

// remembered is what is known under one cache-id.
type remembered struct {
	resources []jsontext.Value
	known     map[[sha256.Size]byte]bool // of each resource
	library   *Library
	size      int64
	used      uint64
}

// maxCacheIDs bounds how many cache-ids are remembered.
const maxCacheIDs = 200

// cacheKey returns the key for a request's cache-id, or false where it has none. It holds the credentials as
// well, so that no client is answered from what another one sent.
func cacheKey(r *http.Request, id string) (key [sha256.Size]byte, ok bool) {
	if id == "" {
		id = r.Header.Get("X-Cache-Id")
	}
	if id == "" {
		return key, false
	}
	return sha256.Sum256([]byte(id + "\x00" + r.Header.Get("Authorization"))), true
}

// library returns a library with all that was sent under a key, up to now and now.
func (c *resourceCache) library(base *Library, key [sha256.Size]byte, sent []jsontext.Value, limit int64) (*Library, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.turn++
	item := c.items[key]
	if item == nil {
		item = &remembered{known: make(map[[sha256.Size]byte]bool)}
	}
	fresh, size := item.fresh(sent)
	item.used = c.turn
	if len(fresh) == 0 && item.library != nil && item.library.base == base {
		return item.library, nil
	}
	resources := append(item.resources[:len(item.resources):len(item.resources)], fresh...)
	library, err := base.with(resources)
	if err != nil || item.size+size > limit {
		return library, err // too much to be remembered, but not to be answered
	}
	for _, resource := range fresh {
		item.known[sha256.Sum256(resource)] = true
	}
	item.resources, item.library, item.size = resources, library, item.size+size
	c.keep(key, item, size, limit)
	return library, nil
}

// fresh returns those of the resources that are not remembered yet, and their size.
func (m *remembered) fresh(sent []jsontext.Value) (fresh []jsontext.Value, size int64) {
	for _, resource := range sent {
		if !m.known[sha256.Sum256(resource)] {
			fresh = append(fresh, resource)
			size += int64(len(resource))
		}
	}
	return fresh, size
}

// keep remembers an item that has grown, and forgets others to make room for it.
func (c *resourceCache) keep(key [sha256.Size]byte, item *remembered, grown, limit int64) {
	if c.items == nil {
		c.items = make(map[[sha256.Size]byte]*remembered)
	}
	c.items[key] = item
	c.held += grown
	for c.held > limit || len(c.items) > maxCacheIDs {
		var oldest [sha256.Size]byte
		found := false
		for k, other := range c.items {
			if k != key && (!found || other.used < c.items[oldest].used) {
				oldest, found = k, true
			}
		}
		if !found {
			return
		}
		c.held -= c.items[oldest].size
		delete(c.items, oldest)
	}
}
