package dispatch

import (
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestSightings(t *testing.T) {
	t.Parallel()
	s := newSightings()
	const question = 0xabcdef0000000002
	for i, want := range []sighting{unseen, seen, seen} {
		if got := s.look(question); got != want {
			t.Errorf("look %d: %v, want %v", i, got, want)
		}
	}
	s.isNext(question)
	if got := s.look(question); got != seenNext {
		t.Errorf("answered by the next handler: %v", got)
	}
	ask := func(host, target, accept string, seed uint64) uint64 {
		r := httptest.NewRequest(http.MethodGet, target, nil)
		r.Host = host
		r.Header.Set("Accept", accept)
		return s.number(r, seed)
	}
	first := ask("h", "/a?b", "c", 1)
	for name, other := range map[string]uint64{
		"host": ask("i", "/a?b", "c", 1), "path": ask("h", "/b?b", "c", 1), "query": ask("h", "/a?c", "c", 1), "format": ask("h", "/a?b", "d", 1), "definitions": ask("h", "/a?b", "c", 2),
	} {
		if other == first {
			t.Errorf("%s makes no difference", name)
		}
	}
}

// A scan over a million questions does not drive out what is asked all the time.
func TestScanLeavesSightings(t *testing.T) {
	t.Parallel()
	s, random := newSightings(), rand.New(rand.NewPCG(1, 2))
	hot := make([]uint64, 1000)
	for i := range hot {
		hot[i] = random.Uint64()&^1 | 2
	}
	known := 0
	for n := range 1_000_000 {
		s.look(random.Uint64()&^1 | 2)
		if n%20 == 0 && s.look(hot[n/20%len(hot)]) == seen && n >= 40*len(hot) {
			known++
		}
	}
	if all := (1_000_000 - 40*len(hot)) / 20; known*100 < all*95 {
		t.Errorf("%d of %d were known", known, all)
	}
}
