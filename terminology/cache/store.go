package cache

import (
	"container/list"
	"crypto/sha256"
	"encoding/binary"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
)

// store holds entries within a bound of bytes. Which ones is decided as W-TinyLFU has it (Einziger, Friedman,
// Manes 2017): what is new stands in a small window, and leaves it only for a place in the main part that is
// free, or held by entries which together are wanted less. So many questions that are asked once each cannot
// drive out those that are asked again and again. The main part is a segmented LRU.
//
// All of it changes under one lock, at once: entries, the raw requests that find them, the index of tags, and
// the era. Hence a removed entry is found in no way, and the numbers are exact. No goroutine is needed, none
// outlives the cache.
type store struct {
	mu       sync.Mutex
	entries  map[[sha256.Size]byte]*entry
	aliases  map[string]*entry // by raw request
	tags     index             // by the URL of a canonical; "" for entries whose tags are not known
	segments [3]segment
	sketch   *sketch
	max      int64
	era      *era
	counters
}

// era is the time between two invalidations. What was asked in one era is not kept in another one, and is not
// given to those who ask in it: it may come from what was true before.
type era struct {
	flights  singleflight.Group
	failures failures
}

func newEra() *era {
	e := new(era)
	e.failures.byKey.MaxEntries = maxFailures
	return e
}

// counters counts what became of entries.
type counters struct{ evicted, rejected, removed uint64 }

// place is where an entry stands in the store.
type place struct {
	segment int
	element *list.Element
	aliases []string
	size    int64
}

// maxAliases bounds in how many ways one entry can be asked for without parsing; maxAlias is how long a raw
// request may be for it, in bytes.
const (
	maxAliases = 8
	maxAlias   = 4 << 10
)

// aliasOverhead is what an alias takes beside the request.
const aliasOverhead = 80

// typicalSize is how large entries are thought to be, to choose the size of the sketch.
const typicalSize = 2 << 10

// newStore returns a store for at most limit bytes.
func newStore(limit int64) *store {
	return &store{
		entries: make(map[[sha256.Size]byte]*entry), aliases: make(map[string]*entry), era: newEra(),
		tags: make(index), sketch: newSketch(limit / typicalSize), max: limit,
	}
}

// find returns the entry that a raw request found before.
func (s *store) find(raw []byte) *entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.aliases[string(raw)]
	if e != nil {
		s.sketch.add(e.hash())
		s.touch(e)
	}
	return e
}

// get returns the entry with a key, if there is one. The raw request, unless it is nil, will find it next time.
func (s *store) get(key Key, raw []byte) *entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sketch.add(hashOf(key))
	e := s.entries[key.sum]
	if e != nil {
		s.touch(e)
		s.alias(e, raw)
		s.balance()
	}
	return e
}

// now returns the entry with a key, if there is one, and notes no use of it.
func (s *store) now(key Key) *entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.entries[key.sum]
}

// alias makes a raw request find an entry. The oldest of too many is forgotten.
func (s *store) alias(e *entry, raw []byte) {
	if raw == nil || len(raw) > maxAlias || s.aliases[string(raw)] == e {
		return
	}
	if len(e.place.aliases) == maxAliases {
		oldest := e.place.aliases[0]
		delete(s.aliases, oldest)
		e.place.aliases = append(e.place.aliases[:0], e.place.aliases[1:]...)
		s.resize(e, -int64(len(oldest)+aliasOverhead))
	}
	alias := string(raw)
	s.aliases[alias] = e
	e.place.aliases = append(e.place.aliases, alias)
	s.resize(e, int64(len(alias)+aliasOverhead))
}

// hash returns what the sketch knows an entry by.
func (e *entry) hash() uint64 { return hashOf(e.key) }

// hashOf returns what the sketch knows a key by.
func hashOf(key Key) uint64 { return binary.LittleEndian.Uint64(key.sum[:]) }

// add keeps an entry that was made in an era, in place of an older one with its key, and reports whether there
// is room for it.
func (s *store) add(e *entry, made *era, now time.Time) (stored bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.era != made {
		return false
	}
	s.expire(now)
	old := s.entries[e.key.sum]
	e.place.size = e.cost()
	if e.place.size > s.max/entryShare {
		s.rejected++
		if old != nil {
			s.remove(old)
		}
		return false
	}
	if old != nil {
		s.replace(old, e)
	} else {
		s.entries[e.key.sum] = e
		s.index(e)
		s.move(e, window)
	}
	s.balance()
	return s.entries[e.key.sum] == e
}

// replace puts an entry where an older one with its key is: that it has become another one does not make it
// less wanted.
func (s *store) replace(old, e *entry) {
	to, aliases := old.place.segment, old.place.aliases
	s.remove(old)
	s.entries[e.key.sum] = e
	s.index(e)
	s.move(e, to)
	for _, alias := range aliases {
		s.alias(e, []byte(alias))
	}
}

// discard removes an entry that has been found to be wrong.
func (s *store) discard(e *entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.entries[e.key.sum] == e {
		s.remove(e)
		s.removed++
	}
}

// grow makes an entry larger, if it is still there.
func (s *store) grow(e *entry, by int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.entries[e.key.sum] == e {
		s.resize(e, by)
		s.balance()
	}
}

// resize changes the size of an entry.
func (s *store) resize(e *entry, by int64) {
	e.place.size += by
	s.segments[e.place.segment].bytes += by
}

// remove removes an entry and all that leads to it.
func (s *store) remove(e *entry) {
	s.take(e)
	delete(s.entries, e.key.sum)
	for _, alias := range e.place.aliases {
		delete(s.aliases, alias)
	}
	e.place.aliases = nil
	s.unindex(e)
}

// sampled is how many entries are looked at, each time one is added, for whether they are of use any more.
const sampled = 4

// expire removes some of the entries that are of no use any more. The more of them there are, the more it
// finds; those it does not are the first to be evicted anyway.
func (s *store) expire(now time.Time) {
	n := 0
	for _, e := range s.entries { // begins anywhere
		if n++; n > sampled {
			return
		}
		if e.age(now) >= e.kept {
			s.remove(e)
		}
	}
}
