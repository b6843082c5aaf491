package cache

import (
	"container/list"
	"crypto/sha256"
	"math/bits"
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
)

const (
	maxAliases       = 8       // maximum aliases per entry; an alias is a raw request that finds the entry without parsing
	maxAliasSize     = 4 << 10 // maximum size of an alias in bytes
	aliasOverhead    = 80      // bytes per alias in addition to the raw request
	typicalEntrySize = 2 << 10 // assumed entry size in bytes, for sizing the sketch
)

// store is a size-bounded set of entries with W-TinyLFU eviction (Einziger, Friedman, Manes 2017). A new entry starts in a
// small window. It moves to the main part, a segmented LRU, only if there is free space or if it is used more than all the
// entries that it evicts. Therefore, one-time requests never evict popular entries.
//
// A single lock guards all fields, so that removed entries cannot be found and counters are exact.
type store struct {
	mu                 sync.Mutex
	entries            map[[sha256.Size]byte]*entry
	aliases            map[string]*entry // by raw request
	tags               index             // by canonical URL; "" for entries without tags
	segments           [3]segment
	sketch             *sketch
	max                int64 // maximum sizes in bytes, for the entire store, the window and the main part
	maxWindow, maxMain int64
	generation         *generation
	evicted, rejected  uint64
}

// segment is a list of entries, with the most recently used first.
type segment struct {
	list.List
	bytes int64
}

const (
	segmentWindow    = iota // new entries
	segmentProbation        // not used since leaving the window
	segmentProtected        // used since leaving the window
)

// Size limits: the window gets 1/windowShare of the store, the protected segment 4/5 of the rest. An entry may use at most
// 1/entryShare, so that it cannot evict all others.
const (
	windowShare = 100
	entryShare  = 4
)

// generation is the period between two invalidations. A response fetched in one generation may be outdated in the next, where
// it is neither stored nor used.
type generation struct {
	flights  singleflight.Group
	failures failures
}

func newGeneration() *generation {
	e := new(generation)
	e.failures.byKey.MaxEntries = maxFailures
	return e
}

// newStore returns a store with a size limit in bytes.
func newStore(limit int64) *store {
	return &store{
		entries: make(map[[sha256.Size]byte]*entry), aliases: make(map[string]*entry), generation: newGeneration(),
		tags: make(index), sketch: newSketch(limit / typicalEntrySize),
		max: limit, maxWindow: limit / windowShare, maxMain: limit - limit/windowShare,
	}
}

// find returns the entry with the alias raw, or nil.
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

// get returns the entry with the given key, or nil. Unless raw is nil, get adds it as an alias of the entry.
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

// peek is like get, but does not count as a use and adds no alias.
func (s *store) peek(key Key) *entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.entries[key.sum]
}

// alias adds an alias to an entry. If the entry already has maxAliases, the oldest alias is removed.
func (s *store) alias(e *entry, raw []byte) {
	if raw == nil || len(raw) > maxAliasSize || s.aliases[string(raw)] == e {
		return
	}
	if len(e.position.aliases) == maxAliases {
		oldest := e.position.aliases[0]
		delete(s.aliases, oldest)
		e.position.aliases = append(e.position.aliases[:0], e.position.aliases[1:]...)
		s.resize(e, -int64(len(oldest)+aliasOverhead))
	}
	alias := string(raw)
	s.aliases[alias] = e
	e.position.aliases = append(e.position.aliases, alias)
	s.resize(e, int64(len(alias)+aliasOverhead))
}

// add stores an entry unless its generation, made, has ended, and reports whether it did. It replaces an entry with the same
// key.
func (s *store) add(e *entry, made *generation, now time.Time) (stored bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.generation != made {
		return false
	}
	s.expire(now)
	old := s.entries[e.key.sum]
	e.position.size = e.cost()
	if e.position.size > s.max/entryShare {
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
		s.moveToFront(e, segmentWindow)
	}
	s.balance()
	return s.entries[e.key.sum] == e
}

// replace replaces old with an entry that has the same key and inherits its segment and aliases.
func (s *store) replace(old, e *entry) {
	to, aliases := old.position.segment, old.position.aliases
	s.remove(old)
	s.entries[e.key.sum] = e
	s.tags.put(e)
	s.moveToFront(e, to)
	for _, alias := range aliases {
		s.alias(e, []byte(alias))
	}
}

// discard removes an entry that turned out to be invalid.
func (s *store) discard(e *entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.entries[e.key.sum] == e {
		s.remove(e)
	}
}

// grow adds to the recorded size of an entry if it is still stored.
func (s *store) grow(e *entry, by int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.entries[e.key.sum] == e {
		s.resize(e, by)
		s.balance()
	}
}

func (s *store) resize(e *entry, by int64) {
	e.position.size += by
	s.segments[e.position.segment].bytes += by
}

// expirationSamples is the number of entries that add checks for expiration.
const expirationSamples = 4

// expire checks a few random entries and removes the expired ones. The more entries have expired, the more it removes.
func (s *store) expire(now time.Time) {
	n := 0
	for _, e := range s.entries { // iteration starts at a random entry
		if n++; n > expirationSamples {
			return
		}
		if e.age(now) >= e.retention {
			s.remove(e)
		}
	}
}

func (s *store) touch(e *entry) {
	if e.position.segment != segmentProbation {
		s.segments[e.position.segment].MoveToFront(e.position.element)
		return
	}
	s.moveToFront(e, segmentProtected)
	limit := s.maxMain / 5 * 4
	for s.segments[segmentProtected].bytes > limit && s.segments[segmentProtected].Len() > 1 {
		s.moveToFront(s.segments[segmentProtected].leastRecent(), segmentProbation)
	}
}

// leastRecent returns the least recently used entry, or nil.
func (g *segment) leastRecent() *entry {
	if back := g.Back(); back != nil {
		return back.Value.(*entry)
	}
	return nil
}

// moveToFront moves an entry to the front of a segment.
func (s *store) moveToFront(e *entry, to int) {
	s.unlink(e)
	e.position.segment = to
	e.position.element = s.segments[to].PushFront(e)
	s.segments[to].bytes += e.position.size
}

func (s *store) unlink(e *entry) {
	if e.position.element != nil {
		from := &s.segments[e.position.segment]
		from.Remove(e.position.element)
		from.bytes -= e.position.size
		e.position.element = nil
	}
}

func (s *store) mainBytes() int64 {
	return s.segments[segmentProbation].bytes + s.segments[segmentProtected].bytes
}
func (s *store) bytes() int64 { return s.mainBytes() + s.segments[segmentWindow].bytes }

// balance enforces the size limits of the window and the main part.
func (s *store) balance() {
	for s.segments[segmentWindow].bytes > s.maxWindow {
		candidate := s.segments[segmentWindow].leastRecent()
		s.unlink(candidate)
		s.admit(candidate)
	}
	for s.mainBytes() > s.maxMain {
		s.evict(s.victim(nil))
	}
}

// admit moves a candidate from the window to the main part if it is used more than the entries that it would evict. Otherwise,
// it removes the candidate.
func (s *store) admit(candidate *entry) {
	excess := s.mainBytes() + candidate.position.size - s.maxMain
	uses := s.sketch.estimate(candidate.key.hash())
	var victims []*entry
	for victim := s.victim(nil); excess > 0; victim = s.victim(victim) {
		if victim == nil {
			uses = 0 // candidate exceeds the main part
			break
		}
		if uses -= s.sketch.estimate(victim.key.hash()); uses <= 0 {
			break
		}
		excess -= victim.position.size
		victims = append(victims, victim)
	}
	if uses <= 0 && excess > 0 {
		s.rejected++
		s.remove(candidate)
		return
	}
	for _, victim := range victims {
		s.evict(victim)
	}
	s.moveToFront(candidate, segmentProbation)
}

// victim returns the next entry to evict after the given one. nil returns the first.
func (s *store) victim(after *entry) *entry {
	if after == nil {
		if e := s.segments[segmentProbation].leastRecent(); e != nil {
			return e
		}
		return s.segments[segmentProtected].leastRecent()
	}
	if previous := after.position.element.Prev(); previous != nil {
		return previous.Value.(*entry)
	}
	if after.position.segment == segmentProbation {
		return s.segments[segmentProtected].leastRecent()
	}
	return nil
}

func (s *store) evict(e *entry) {
	s.evicted++
	s.remove(e)
}

// remove removes an entry and its aliases and tags.
func (s *store) remove(e *entry) {
	s.unlink(e)
	delete(s.entries, e.key.sum)
	for _, alias := range e.position.aliases {
		delete(s.aliases, alias)
	}
	e.position.aliases = nil
	s.tags.drop(e)
}

// sketch estimates how often keys were used recently. It is a count-min sketch behind a doorkeeper, a Bloom filter that absorbs
// keys used only once (TinyLFU: Einziger, Friedman, Manes 2017).
type sketch struct {
	seed       uint64 // random, to prevent crafted hash collisions
	counters   [sketchRows][]uint8
	doorkeeper []uint64
	shift      int // right shift that reduces a hash to a counter index
	added      int
	sampleSize int // number of additions after which the counters are halved
}

const (
	sketchRows = 4  // counters per key; the smallest is the estimate
	maxCount   = 15 // maximum value of a counter
)

func newSketch(n int64) *sketch {
	width := bits.Len64(uint64(min(max(n, 1<<10), 1<<20)) - 1)
	s := &sketch{seed: rand.Uint64() | 1, shift: 64 - width, sampleSize: 10 << width}
	for i := range s.counters {
		s.counters[i] = make([]uint8, 1<<width)
	}
	s.doorkeeper = make([]uint64, 1<<width/8) // 8 doorkeeper bits per counter
	return s
}

var oddMultipliers = [sketchRows]uint64{0x9e3779b97f4a7c15, 0xc2b2ae3d27d4eb4f, 0x165667b19e3779f9, 0xd6e8feb86659fd93}

func (s *sketch) counterIndex(hash uint64, row int) uint64 {
	return hash * s.seed * oddMultipliers[row] >> s.shift
}

// doorkeeperBits returns the two words and bit masks of a key in the doorkeeper.
func (s *sketch) doorkeeperBits(hash uint64) (word1, bit1, word2, bit2 uint64) {
	high, low := bits.Mul64(hash^s.seed, oddMultipliers[0])
	mask := uint64(len(s.doorkeeper) - 1)
	return high >> 6 & mask, 1 << (high & 63), low >> 38 & mask, 1 << (low >> 32 & 63)
}

func (s *sketch) add(hash uint64) {
	if s.added++; s.added >= s.sampleSize {
		s.age()
	}
	w1, b1, w2, b2 := s.doorkeeperBits(hash)
	if s.doorkeeper[w1]&b1 == 0 || s.doorkeeper[w2]&b2 == 0 {
		s.doorkeeper[w1] |= b1
		s.doorkeeper[w2] |= b2
		return
	}
	for row := range s.counters {
		if counter := &s.counters[row][s.counterIndex(hash, row)]; *counter < maxCount {
			*counter++
		}
	}
}

// estimate returns the approximate number of uses of a key, at most maxCount+1. Except for aging, it never underestimates.
func (s *sketch) estimate(hash uint64) int {
	count := maxCount
	for row := range s.counters {
		count = min(count, int(s.counters[row][s.counterIndex(hash, row)]))
	}
	w1, b1, w2, b2 := s.doorkeeperBits(hash)
	if s.doorkeeper[w1]&b1 != 0 && s.doorkeeper[w2]&b2 != 0 {
		count++
	}
	return count
}

// age halves all counters, so that older uses have less weight.
func (s *sketch) age() {
	for row := range s.counters {
		for i := range s.counters[row] {
			s.counters[row][i] /= 2
		}
	}
	clear(s.doorkeeper)
	s.added /= 2
}
