package cache

import (
	"crypto/sha256"
	"sync/atomic"
	"time"
)

const (
	maxAliases    = 8       // of an entry: raw requests that find it without parsing
	maxAlias      = 4 << 10 // bytes
	aliasOverhead = 80      // bytes beside the request
	typicalSize   = 2 << 10 // of an entry, for the size of the sketch
)

// newStore returns a store for at most limit bytes.
func newStore(limit int64) *store {
	return &store{
		entries: make(map[[sha256.Size]byte]*entry), aliases: make(map[string]*entry), generation: newGeneration(),
		tags: make(index), sketch: newSketch(limit / typicalSize),
		max: limit, windowMax: limit / windowShare, mainMax: limit - limit/windowShare,
	}
}

// find returns the entry that a raw request found before.
func (s *store) find(raw []byte) *entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.aliases[string(raw)]
	if e != nil {
		s.sketch.add(e.key.hash())
		s.touch(e)
	}
	return e
}

// get returns the entry with a key, or nil, and makes raw an alias of it unless that is nil.
func (s *store) get(key Key, raw []byte) *entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sketch.add(key.hash())
	e := s.entries[key.sum]
	if e != nil {
		s.touch(e)
		s.alias(e, raw)
		s.balance()
	}
	return e
}

// peek is get without counting as a use.
func (s *store) peek(key Key) *entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.entries[key.sum]
}

// alias makes a raw request find an entry, in place of the oldest of too many.
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

// add stores an entry made in a generation, in place of an older one with its key, and reports whether it is stored.
func (s *store) add(e *entry, made *generation, now time.Time) (stored bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.generation != made {
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
		s.tags.put(e)
		s.move(e, window)
	}
	s.balance()
	return s.entries[e.key.sum] == e
}

// replace replaces an entry by a newer one with its key, which takes over its segment and aliases.
func (s *store) replace(old, e *entry) {
	to, aliases := old.place.segment, old.place.aliases
	s.remove(old)
	s.entries[e.key.sum] = e
	s.tags.put(e)
	s.move(e, to)
	for _, alias := range aliases {
		s.alias(e, []byte(alias))
	}
}

// discard removes an entry found to be wrong.
func (s *store) discard(e *entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.entries[e.key.sum] == e {
		s.remove(e)
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

func (s *store) resize(e *entry, by int64) {
	e.place.size += by
	s.segments[e.place.segment].bytes += by
}

// sampled is how many entries are checked for expiry with each new one.
const sampled = 4

// expire removes some expired entries: the more there are, the more it finds.
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

// Cache stores answers. It is safe for concurrent use, has no goroutines except while an answer is made, and needs no
// closing. Make one with [New].
type Cache struct {
	options *Options
	store   *store

	hits, stale, misses atomic.Uint64
}
