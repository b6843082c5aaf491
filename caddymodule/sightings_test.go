package caddymodule

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology/remote"
)

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
