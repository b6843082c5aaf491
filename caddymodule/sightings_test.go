package caddymodule

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology/remote"
)

func TestSightings(t *testing.T) {
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
		return s.of(r, seed)
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

// An answer of the next handler that is too large to be kept is given as it comes.
func TestLargeAnswer(t *testing.T) {
	const size = remote.DefaultMaxRecorded + 1000
	g := frontGateway(t, "ttl 1h", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/fhir+json")
		_, _ = io.WriteString(w, expansionOf(foreign, strings.Repeat("x", size)))
	}))
	for range 3 {
		response := g.askFor(foreign, "")
		if got := read(t, response); response.StatusCode != http.StatusOK || len(got) < size {
			t.Errorf("%d, %d bytes", response.StatusCode, len(got))
		}
	}
}

// BenchmarkTyped is what a search costs that was never there before.
func BenchmarkTyped(b *testing.B) {
	for _, ttl := range []string{"off", "1h"} {
		g := newGateway(b, frontCaddyfile("ttl "+ttl, noBackend))
		b.Run("ttl "+ttl, func(b *testing.B) {
			n := 0
			for b.Loop() {
				n++
				r := httptest.NewRequest(http.MethodGet, fmt.Sprintf("/fhir/R4/ValueSet/$expand?url=http://hl7.org/fhir/ValueSet/languages&count=10&filter=g%d", n), nil)
				r.Host = "localhost:8443"
				g.server.ServeHTTP(&nobody{header: make(http.Header)}, r)
			}
		})
	}
}
