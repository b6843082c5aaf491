package cache

import "container/list"

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
