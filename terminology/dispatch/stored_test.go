package dispatch

import (
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/terminology/remote"
)

// TestCookiesAreNotStored checks that a response with Set-Cookie is sent only to the client that requested it.
func TestCookiesAreNotStored(t *testing.T) {
	t.Parallel()
	var requests atomic.Int64
	g := newSite(t, settings{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		w.Header().Set("Content-Type", "application/fhir+json")
		w.Header().Set("Set-Cookie", "session=1")
		_, _ = io.WriteString(w, expansionOf(foreign, "theirs"))
	}))
	for n := range int64(3) {
		if got := g.expand(foreign).Header.Get("Set-Cookie"); got != "session=1" || requests.Load() != n+1 {
			t.Errorf("Set-Cookie %q, %d requests", got, requests.Load())
		}
	}
}

// TestUpstreamResponsesArePrivate checks that a public response from an upstream becomes private behind a guard, whether it is
// stored or not (RFC 9111 §3.5).
func TestUpstreamResponsesArePrivate(t *testing.T) {
	t.Parallel()
	server := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/fhir+json")
		w.Header().Set("Cache-Control", "public, s-maxage=60")
		_, _ = io.WriteString(w, expansionOf(foreign, "theirs"))
	})
	for _, off := range []bool{false, true} {
		g := newSiteBefore(t, "upstream", settings{off: off}, server)
		for _, wish := range []string{"max-age=60", "no-store"} {
			r := httptest.NewRequest(http.MethodGet, "/fhir/R4/ValueSet/$expand?url="+foreign, nil)
			r.Header.Set("Authorization", "Bearer users")
			r.Header.Set("Cache-Control", wish)
			if got := g.send(r).Header["Cache-Control"]; len(got) != 1 || got[0] != "private, no-cache" {
				t.Errorf("nothing is stored: %t, %s: %q", off, wish, got)
			}
		}
	}
}

// TestLifetimeByUpstream checks that clients of a gateway must revalidate, and that responses to requests with credentials are
// private. A downstream gateway, which sends all requests in its own name, receives the lifetime of responses.
func TestLifetimeByUpstream(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name         string
		lifetime     time.Duration
		cacheControl string
		requests     int64
	}{
		{"without a configured lifetime", 0, "", 3}, {"told", time.Hour, "", 1}, {"configured, with no-store", time.Hour, "private, no-store", 3},
		{"configured, with an old date", time.Hour, "no-cache, max-age=0", 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var requests atomic.Int64
			inner := newSite(t, settings{}, newExpandingBackend())
			g := newSiteBefore(t, "upstream", settings{lifetime: tt.lifetime}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				requests.Add(1)
				r.Header.Set("Authorization", "Bearer gateway")
				r.URL.Path = strings.Replace(r.URL.Path, "/r4/", "/fhir/R4/", 1)
				response := inner.send(r)
				maps.Copy(w.Header(), response.Header)
				if tt.cacheControl != "" {
					w.Header().Set("Cache-Control", tt.cacheControl)
					w.Header().Set("Date", "Fri, 31 Dec 1999 23:59:59 GMT")
				}
				_, _ = io.Copy(w, response.Body)
			}))
			for range 3 {
				if response := g.expand(foreign); response.StatusCode != http.StatusOK || !strings.Contains(read(t, response), "theirs") {
					t.Errorf("status %d", response.StatusCode)
				}
			}
			if n := requests.Load(); n != tt.requests {
				t.Errorf("%d requests, want %d", n, tt.requests)
			}
		})
	}
}

// TestCountIsEnforced checks that a response has the requested number of entries even if the server ignores count.
func TestCountIsEnforced(t *testing.T) {
	t.Parallel()
	entries := strings.Repeat(`{"system":"http://x.example/cs","code":"a"},`, 50)
	server := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/fhir+json")
		_, _ = io.WriteString(w, `{"resourceType":"ValueSet","status":"active","expansion":{"timestamp":"2026-01-01","contains":[`+strings.TrimSuffix(entries, ",")+`]}}`)
	})
	for who, s := range map[string]settings{"next handler": {}, "upstream": {}, "upstream, and nothing is stored": {off: true}} {
		before, _, _ := strings.Cut(who, ",")
		if got := read(t, newSiteBefore(t, before, s, server).expand(foreign+"&count=10")); strings.Count(got, `"code"`) != 10 {
			t.Errorf("%s: %.200s", who, got)
		}
	}
}

// TestOnlyIfCached checks that a request with only-if-cached gets 504 with an OperationOutcome if there is no stored response
// (RFC 9111 §5.2.1.7), and that no server is called.
func TestOnlyIfCached(t *testing.T) {
	t.Parallel()
	server := newExpandingBackend()
	g := newSite(t, settings{}, server)
	r := httptest.NewRequest(http.MethodGet, "/fhir/R4/ValueSet/$expand?url="+foreign, nil)
	r.Header.Set("Cache-Control", "only-if-cached")
	response := g.send(r)
	if outcome := read(t, response); response.StatusCode != http.StatusGatewayTimeout || !strings.Contains(outcome, "only-if-cached") || server.requests.Load() != 0 {
		t.Errorf("%d %s, %d requests", response.StatusCode, outcome, server.requests.Load())
	}
	read(t, g.expand(foreign))
	if got := read(t, g.send(r)); !strings.Contains(got, "theirs") {
		t.Error(got)
	}
}

// TestConcurrentRequestsShareCall checks that concurrent requests for a response that is not stored result in a single call.
func TestConcurrentRequestsShareCall(t *testing.T) {
	t.Parallel()
	for _, who := range []string{"next handler", "upstream"} {
		t.Run(who, func(t *testing.T) {
			good, gate := newExpandingBackend(), make(chan struct{})
			server := &countedBackend{HandlerFunc: func(w http.ResponseWriter, r *http.Request) {
				<-gate
				good.ServeHTTP(w, r)
			}}
			g := newSiteBefore(t, who, settings{}, server)
			var all, begun sync.WaitGroup
			var wrong atomic.Int64
			for range 1000 {
				begun.Add(1)
				all.Go(func() {
					begun.Done()
					if !strings.Contains(read(t, g.expand(foreign)), "theirs") {
						wrong.Add(1)
					}
				})
			}
			begun.Wait()
			close(gate)
			all.Wait()
			if n := server.requests.Load(); n != 1 || wrong.Load() != 0 {
				t.Errorf("%d requests, %d wrong responses", n, wrong.Load())
			}
		})
	}
}

// TestPreferences checks that requests for asynchronous responses (RFC 7240 §2) and for ranges get a normal response.
func TestPreferences(t *testing.T) {
	t.Parallel()
	g := newSite(t, settings{}, newExpandingBackend())
	for _, url := range []string{genderSet, foreign} {
		for range 3 {
			r := httptest.NewRequest(http.MethodGet, "/fhir/R4/ValueSet/$expand?url="+url, nil)
			r.Header.Set("Prefer", "respond-async")
			r.Header.Set("Range", "bytes=0-10")
			response := g.send(r)
			if response.StatusCode != http.StatusOK || response.Header.Get("Preference-Applied") != "" || response.Header.Get("Content-Location") != "" {
				t.Errorf("%d %v", response.StatusCode, response.Header)
			}
		}
	}
}

// TestErrorHasNoCacheStatus checks that an error response has no Cache-Status. The error writer sets its Cache-Control.
func TestErrorHasNoCacheStatus(t *testing.T) {
	t.Parallel()
	g := newSite(t, settings{}, newExpandingBackend())
	r := g.expand(genderSet + "&count=x")
	if r.StatusCode != http.StatusBadRequest || r.Header.Get("Cache-Status") != "" || strings.Contains(r.Header.Get("Cache-Control"), "public") {
		t.Errorf("%d %v", r.StatusCode, r.Header)
	}
}

// TestLargeResponse checks that a response from the next handler that is too large to store is streamed.
func TestLargeResponse(t *testing.T) {
	t.Parallel()
	const size = remote.DefaultMaxResponseSize + 1000
	g := newSite(t, settings{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/fhir+json")
		_, _ = io.WriteString(w, expansionOf(foreign, strings.Repeat("x", size)))
	}))
	for range 3 {
		response := g.expand(foreign)
		if got := read(t, response); response.StatusCode != http.StatusOK || len(got) < size {
			t.Errorf("%d, %d bytes", response.StatusCode, len(got))
		}
	}
}

func TestCacheIDIsFound(t *testing.T) {
	for query, want := range map[string]bool{
		"": false, "url=x": false, "cache-id=1": true, "url=x&cache-id=1": true, "url=x&cache%2Did=1": true, "%63ache-id": true,
		"filter=cache-id": false, "cache-ids=1": false, "%zz=1&cache-id=2": true,
	} {
		if got := hasCacheID(query); got != want {
			t.Errorf("%q: %t", query, got)
		}
	}
	for body, want := range map[string]bool{
		`{"parameter":[{"name":"cache-id"}]}`: true, `{"parameter":[{"name":"cache\u002did"}]}`: true, `<name value="cache&#45;id"/>`: true, "url=x&cache%2Did=1": true,
		`{"parameter":[{"name":"url","valueUri":"http://x"}]}`: false,
	} {
		if got := mentionsCacheID([]byte(body)); got != want {
			t.Errorf("%s: %t", body, got)
		}
	}
}

func TestAdmissionLook(t *testing.T) {
	t.Parallel()
	s := newAdmission()
	const question = 0xabcdef0000000002
	for i, want := range []requestRecord{neverSeen, seenBefore, seenBefore} {
		if got := s.lookUp(question); got != want {
			t.Errorf("look %d: %v, want %v", i, got, want)
		}
	}
	s.recordNext(question)
	if got := s.lookUp(question); got != servedByNext {
		t.Errorf("answered by the next handler: %v", got)
	}
	ask := func(host, target, accept string, seed uint64) uint64 {
		r := httptest.NewRequest(http.MethodGet, target, nil)
		r.Host = host
		r.Header.Set("Accept", accept)
		return s.requestHash(r, seed)
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

// TestScanEvictsNoPopularRequests checks that a million one-time requests do not evict popular requests.
func TestScanEvictsNoPopularRequests(t *testing.T) {
	t.Parallel()
	s, random := newAdmission(), rand.New(rand.NewPCG(1, 2))
	hot := make([]uint64, 1000)
	for i := range hot {
		hot[i] = random.Uint64()&^1 | 2
	}
	cached := 0
	for n := range 1_000_000 {
		s.lookUp(random.Uint64()&^1 | 2)
		if n%20 == 0 && s.lookUp(hot[n/20%len(hot)]) == seenBefore && n >= 40*len(hot) {
			cached++
		}
	}
	if all := (1_000_000 - 40*len(hot)) / 20; cached*100 < all*95 {
		t.Errorf("%d of %d were cached", cached, all)
	}
}
