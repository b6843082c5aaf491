package caddymodule

import (
	"hash/maphash"
	"net/http"
	"sync/atomic"
)

// sightings remember which questions there were lately, and which of them the next
// handler answered, so that one that is there for the first time costs no more than
// without a cache: most of what is typed letter by letter never comes again. What
// was asked more than once is remembered apart, so that such questions do not drive
// it out. They decide about effort alone: whatever they say, the answer is right.
type sightings struct {
	hash  maphash.Seed
	once  [1 << sightingBits]atomic.Uint64
	often [1 << sightingBits]atomic.Uint64
}

const sightingBits = 16

// sighting is what is known of a question.
type sighting uint8

const (
	unseen sighting = iota
	seen
	seenNext // the next handler answered it
)

func newSightings() *sightings { return &sightings{hash: maphash.MakeSeed()} }

// seed stands for the definitions that questions are asked of.
func (s *sightings) seed(epoch string) uint64 { return maphash.String(s.hash, epoch) }

// of returns a number for a question. It is even, and never 0.
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

// look says what is known of a question, and remembers that it was asked.
func (s *sightings) look(question uint64) sighting {
	slot := question >> (64 - sightingBits)
	known := s.often[slot].Load()
	if known|1 != question|1 {
		if known = s.once[slot].Load(); known|1 != question|1 {
			s.once[slot].Store(question)
			return unseen
		}
		s.often[slot].Store(known)
	}
	if known == question {
		return seen
	}
	return seenNext
}

// isNext remembers that the next handler answered a question.
func (s *sightings) isNext(question uint64) {
	slot := question >> (64 - sightingBits)
	for _, list := range []*atomic.Uint64{&s.once[slot], &s.often[slot]} {
		list.CompareAndSwap(question, question|1)
	}
}
