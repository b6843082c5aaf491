package front

import (
	"hash/maphash"
	"net/http"
	"sync/atomic"
)

// sightings remember recent requests, and which of them the next handler answered. Most of what is typed letter by letter
// never comes again: a request seen for the first time thus costs no more than without a cache. Repeated requests are kept
// apart, so that others do not evict them. A wrong sighting does no harm.
type sightings struct {
	hash  maphash.Seed
	once  [1 << sightingBits]atomic.Uint64
	often [1 << sightingBits]atomic.Uint64
}

const sightingBits = 16

// sighting is what is known of a request.
type sighting uint8

const (
	unseen sighting = iota
	seen
	seenNext // the next handler answered it
)

func newSightings() *sightings { return &sightings{hash: maphash.MakeSeed()} }

func (s *sightings) seed(epoch string) uint64 { return maphash.String(s.hash, epoch) }

// number returns a number for a request, even and not 0.
func (s *sightings) number(r *http.Request, seed uint64) uint64 {
	var h maphash.Hash
	h.SetSeed(s.hash)
	maphash.WriteComparable(&h, seed)
	for _, text := range [...]string{r.Host, r.URL.Path, r.URL.RawQuery} {
		_, _ = h.WriteString(text)
		_ = h.WriteByte(0)
	}
	for _, name := range [...]string{"Accept", "Accept-Language"} {
		for _, value := range r.Header[name] {
			_, _ = h.WriteString(value)
			_ = h.WriteByte(0)
		}
	}
	return h.Sum64()&^1 | 2
}

// look returns what is known of a request, and notes that it came.
func (s *sightings) look(n uint64) sighting {
	slot := n >> (64 - sightingBits)
	known := s.often[slot].Load()
	if known|1 != n|1 {
		if known = s.once[slot].Load(); known|1 != n|1 {
			s.once[slot].Store(n)
			return unseen
		}
		s.often[slot].Store(known)
	}
	if known == n {
		return seen
	}
	return seenNext
}

// isNext notes that the next handler answered a request.
func (s *sightings) isNext(n uint64) {
	slot := n >> (64 - sightingBits)
	for _, list := range []*atomic.Uint64{&s.once[slot], &s.often[slot]} {
		list.CompareAndSwap(n, n|1)
	}
}
