package cache

import (
	"container/list"
	"crypto/sha256"
	"sync"

	"golang.org/x/sync/singleflight"
)

// segment is a list of entries, the last used at the front.
type segment struct {
	list.List
	bytes int64
}

const (
	window    = iota // new entries
	probation        // not used since they left the window
	protected        // used since then
)

// Bounds within the store: the window has 1/windowShare of it, the protected segment 4/5 of the rest, and one entry at
// most 1/entryShare, so that it cannot evict all others.
const (
	windowShare = 100
	entryShare  = 4
)

func (s *store) touch(e *entry) {
	if e.place.segment != probation {
		s.segments[e.place.segment].MoveToFront(e.place.element)
		return
	}
	s.move(e, protected)
	limit := s.mainMax / 5 * 4
	for s.segments[protected].bytes > limit && s.segments[protected].Len() > 1 {
		s.move(s.segments[protected].last(), probation)
	}
}

// last returns the least recently used entry, or nil.
func (g *segment) last() *entry {
	if back := g.Back(); back != nil {
		return back.Value.(*entry)
	}
	return nil
}

// move puts an entry at the front of a segment.
func (s *store) move(e *entry, to int) {
	s.take(e)
	e.place.segment = to
	e.place.element = s.segments[to].PushFront(e)
	s.segments[to].bytes += e.place.size
}

func (s *store) take(e *entry) {
	if e.place.element != nil {
		from := &s.segments[e.place.segment]
		from.Remove(e.place.element)
		from.bytes -= e.place.size
		e.place.element = nil
	}
}

func (s *store) mainBytes() int64 { return s.segments[probation].bytes + s.segments[protected].bytes }
func (s *store) bytes() int64     { return s.mainBytes() + s.segments[window].bytes }

// balance brings each part within its bound.
func (s *store) balance() {
	for s.segments[window].bytes > s.windowMax {
		candidate := s.segments[window].last()
		s.take(candidate)
		s.admit(candidate)
	}
	for s.mainBytes() > s.mainMax {
		s.evict(s.victim(nil))
	}
}

// admit moves a candidate from the window to the main part if it is used more than the entries that have to make room, and
// removes it otherwise.
func (s *store) admit(candidate *entry) {
	need := s.mainBytes() + candidate.place.size - s.mainMax
	wanted := s.sketch.estimate(candidate.key.hash())
	var victims []*entry
	for victim := s.victim(nil); need > 0; victim = s.victim(victim) {
		if victim == nil {
			wanted = 0 // there is no room for it at all
			break
		}
		if wanted -= s.sketch.estimate(victim.key.hash()); wanted <= 0 {
			break
		}
		need -= victim.place.size
		victims = append(victims, victim)
	}
	if wanted <= 0 && need > 0 {
		s.rejected++
		s.remove(candidate)
		return
	}
	for _, victim := range victims {
		s.evict(victim)
	}
	s.move(candidate, probation)
}

// victim returns the entry to evict after another one, or the first.
func (s *store) victim(after *entry) *entry {
	if after == nil {
		if e := s.segments[probation].last(); e != nil {
			return e
		}
		return s.segments[protected].last()
	}
	if previous := after.place.element.Prev(); previous != nil {
		return previous.Value.(*entry)
	}
	if after.place.segment == probation {
		return s.segments[protected].last()
	}
	return nil
}

func (s *store) evict(e *entry) {
	s.evicted++
	s.remove(e)
}

// store holds entries within a bound of bytes by W-TinyLFU (Einziger, Friedman, Manes 2017): a new entry starts in a small
// window, and leaves it only for room in the main part, a segmented LRU, that is free or held by entries that together are
// used less. So requests made only once never evict what is asked for again and again.
//
// One lock guards entries, aliases, tags and the generation, so that a removed entry cannot be found and numbers are exact.
type store struct {
	mu                 sync.Mutex
	entries            map[[sha256.Size]byte]*entry
	aliases            map[string]*entry // by raw request
	tags               index             // by the URL of a canonical; "" for entries whose tags are not known
	segments           [3]segment
	sketch             *sketch
	max                int64 // bytes: windowMax for the window and mainMax for the rest
	windowMax, mainMax int64
	generation         *generation
	evicted, rejected  uint64
}

// generation is the time between two invalidations. An answer asked for in one generation may be outdated in the next, and
// is neither stored nor used there.
type generation struct {
	flights  singleflight.Group
	failures failures
}

func newGeneration() *generation {
	e := new(generation)
	e.failures.byKey.MaxEntries = maxFailures
	return e
}

// remove removes an entry and all that leads to it.
func (s *store) remove(e *entry) {
	s.take(e)
	delete(s.entries, e.key.sum)
	for _, alias := range e.place.aliases {
		delete(s.aliases, alias)
	}
	e.place.aliases = nil
	s.tags.drop(e)
}
