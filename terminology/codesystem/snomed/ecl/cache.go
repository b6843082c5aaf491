package ecl

import (
	"container/list"
	"sync"

	"github.com/caddy-fhir/caddy-fhir/terminology/internal/bitset"
)

// resultCache contains the most recently used results by canonical text. Its size is limited in bytes.
type resultCache struct {
	capacity int

	mutex   sync.Mutex
	size    int
	entries map[string]*list.Element
	recent  list.List // of *cachedResult, most recent first
}

type cachedResult struct {
	text string
	set  bitset.Set
}

// entryBytes is the approximate memory of an entry without its text and its set.
const entryBytes = 200

func (r *cachedResult) bytes() int { return entryBytes + len(r.text) + 8*len(r.set) }

// get returns the result of an expression, or nil.
func (c *resultCache) get(text string) bitset.Set {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	element := c.entries[text]
	if element == nil {
		return nil
	}
	c.recent.MoveToFront(element)
	return element.Value.(*cachedResult).set
}

// add adds a result and evicts the least recently used ones. Results that exceed the capacity are not added.
func (c *resultCache) add(text string, set bitset.Set) {
	r := &cachedResult{text: text, set: set}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.entries[text] != nil || r.bytes() > c.capacity {
		return
	}
	if c.entries == nil {
		c.entries = make(map[string]*list.Element)
	}
	c.entries[text] = c.recent.PushFront(r)
	for c.size += r.bytes(); c.size > c.capacity; {
		oldest := c.recent.Remove(c.recent.Back()).(*cachedResult)
		delete(c.entries, oldest.text)
		c.size -= oldest.bytes()
	}
}
