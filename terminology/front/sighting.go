package front

import (
	"hash/maphash"
	"net/http"
	"sync/atomic"
)

// sightings remember which requests there were lately, and which of them the next handler answered, so that one
// that comes for the first time costs no more than without a cache: most of what is typed letter by letter never
// comes again. What came more than once is remembered apart, so that the others do not drive it out. Sightings
// decide about effort alone: whatever they say, the answer is right.
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

// seed stands for the definitions that requests are answered from.
func (s *sightings) seed(epoch string) uint64 { return maphash.String(s.hash, epoch) }

// of returns a number for a request. It is even, and never 0.
func (s *sightings) of(r *http.Request, seed uint64) uint64 {
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

// look says what is known of a request, by its number, and remembers that it came.
func (s *sightings) look(number uint64) sighting {
	slot := number >> (64 - sightingBits)
	known := s.often[slot].Load()
	if known|1 != number|1 {
		if known = s.once[slot].Load(); known|1 != number|1 {
			s.once[slot].Store(number)
			return unseen
		}
		s.often[slot].Store(known)
	}
	if known == number {
		return seen
	}
	return seenNext
}

// isNext remembers that the next handler answered a request.
func (s *sightings) isNext(number uint64) {
	slot := number >> (64 - sightingBits)
	for _, list := range []*atomic.Uint64{&s.once[slot], &s.often[slot]} {
		list.CompareAndSwap(number, number|1)
	}
}
