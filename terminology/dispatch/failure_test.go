package dispatch

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/terminology/cache"
	"github.com/caddy-fhir/caddy-fhir/terminology/remote"
)

// countedBackend is a backend that counts requests.
type countedBackend struct {
	http.HandlerFunc
	requests atomic.Int64
}

func (c *countedBackend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.requests.Add(1)
	c.HandlerFunc(w, r)
}

// newFailingBackend returns a backend that sends the given status and an OperationOutcome.
func newFailingBackend(status int, retryAfter string) *countedBackend {
	return &countedBackend{HandlerFunc: func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/fhir+json")
		if retryAfter != "" {
			w.Header().Set("Retry-After", retryAfter)
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, `{"resourceType":"OperationOutcome","issue":[{"severity":"error","code":"exception"}]}`)
	}}
}

// pages returns a backend that sends a 200 MB body that is not FHIR.
func pages(contentType string) *countedBackend {
	return &countedBackend{HandlerFunc: func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		for range 200 {
			if _, err := w.Write(bytes.Repeat([]byte(" "), 1<<20)); err != nil {
				return
			}
		}
	}}
}

// TestFailuresAreShared checks that a failing server gets only one request per key, although the key is requested concurrently
// and repeatedly. The server fails with an OperationOutcome, without a body, or with a very large body.
func TestFailuresAreShared(t *testing.T) {
	t.Parallel()
	tests := map[string]func() *countedBackend{
		"500 in FHIR": func() *countedBackend { return newFailingBackend(500, "") },
		"429 in FHIR": func() *countedBackend { return newFailingBackend(429, "") },
		"nothing": func() *countedBackend {
			return &countedBackend{HandlerFunc: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }}
		},
		"200 MB of HTML":   func() *countedBackend { return pages("text/html") },
		"200 MB of spaces": func() *countedBackend { return pages("application/fhir+json") },
	}
	for name, backend := range tests {
		for target, status := range map[string]int{foreign + " next handler": 0, foreign + " upstream": 0, incomplete + " next handler": 422} {
			t.Run(name+", "+target, func(t *testing.T) {
				t.Parallel()
				server := backend()
				url, who, _ := strings.Cut(target, " ")
				g := newSiteBefore(t, who, settings{cache: cache.Options{FailureTTL: time.Hour}}, server)
				var all sync.WaitGroup
				for range 20 {
					all.Go(func() {
						response := g.expand(url)
						size := len(read(t, response))
						if code := response.StatusCode; code < 400 || status != 0 && code != status || size > 10_000 {
							t.Errorf("%d with %d bytes", code, size)
						}
					})
				}
				all.Wait()
				if n := server.requests.Load(); n != 1 {
					t.Errorf("%d requests", n)
				}
			})
		}
	}
}

// TestRetryAfterIsObeyed checks that a server's Retry-After also applies to other requests and is passed to clients (RFC 9110
// §10.2.3). A limit for one user does not affect other users.
func TestRetryAfterIsObeyed(t *testing.T) {
	t.Parallel()
	tests := []struct {
		who          string
		status, want int
		requests     int64
	}{
		{"next handler", 503, 503, 1},
		{"next handler", 429, 429, 3},
		{"upstream", 503, 503, 1},
		{"upstream", 429, 503, 1},
	}
	for _, tt := range tests {
		t.Run(tt.who+" "+strconv.Itoa(tt.status), func(t *testing.T) {
			server := newFailingBackend(tt.status, "100")
			g := newSiteBefore(t, tt.who, settings{cache: cache.Options{FailureTTL: time.Second}}, server)
			for _, url := range []string{foreign, foreign + "2", foreign + "3", foreign} {
				response := g.expand(url)
				wait, err := strconv.Atoi(response.Header.Get("Retry-After"))
				if err != nil || wait < 1 || wait > 100 || response.StatusCode != tt.want {
					t.Errorf("%s: %d, Retry-After %q", url, response.StatusCode, response.Header.Get("Retry-After"))
				}
			}
			if n := server.requests.Load(); n != tt.requests {
				t.Errorf("%d requests, want %d", n, tt.requests)
			}
		})
	}
}

// TestWrongValueSetIsNotStored checks that an expansion of the wrong value set is sent only to the client that caused the
// request and is not stored.
func TestWrongValueSetIsNotStored(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		url    string
		stored bool
	}{
		"the same":        {foreign, true},
		"a version of it": {foreign + "|2", true},
		"none":            {"", true},
		"another":         {foreign + "/other", false},
	}
	for name, tt := range tests {
		for _, who := range []string{"next handler", "upstream"} {
			for _, format := range []string{"json", "xml"} {
				t.Run(name+", "+who+", "+format, func(t *testing.T) {
					server := &countedBackend{HandlerFunc: func(w http.ResponseWriter, _ *http.Request) {
						w.Header().Set("Content-Type", "application/fhir+"+format)
						body := expansionOf(tt.url, "theirs")
						if format == "xml" {
							body = `<ValueSet xmlns="http://hl7.org/fhir"><url value="` + tt.url + `"/><status value="active"/><expansion><contains><code value="theirs"/></contains></expansion></ValueSet>`
						}
						_, _ = io.WriteString(w, body)
					}}
					g := newSiteBefore(t, who, settings{cache: cache.Options{FailureTTL: time.Hour}}, server)
					for range 3 {
						r := httptest.NewRequest(http.MethodGet, "/fhir/R4/ValueSet/$expand?url="+foreign, nil)
						r.Header.Set("Accept", "application/fhir+"+format)
						if response := g.send(r); response.StatusCode != http.StatusOK {
							t.Errorf("status %d", response.StatusCode)
						}
					}
					if n := server.requests.Load(); (n == 1) != tt.stored {
						t.Errorf("%d requests", n)
					}
				})
			}
		}
	}
}

// TestStaleDuringRetryAfter checks that stale responses are used until a server's Retry-After has elapsed.
func TestStaleDuringRetryAfter(t *testing.T) {
	t.Parallel()
	good := atomic.Bool{}
	good.Store(true)
	busy := newFailingBackend(503, "100")
	server := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !good.Load() {
			busy.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/fhir+json")
		w.Header().Set("Cache-Control", "max-age=0")
		_, _ = io.WriteString(w, expansionOf(foreign, "theirs"))
	})
	g := newSite(t, settings{cache: cache.Options{StaleIfError: 24 * time.Hour}}, server)
	read(t, g.expand(foreign))
	good.Store(false)
	for range 3 {
		if response := g.expand(foreign); response.StatusCode != http.StatusOK {
			t.Errorf("status %d", response.StatusCode)
		}
	}
	if n := busy.requests.Load(); n != 1 {
		t.Errorf("%d requests", n)
	}
}

// TestBusyServer checks that an overloaded server's Retry-After is reported (RFC 9110 §10.2.3).
func TestBusyServer(t *testing.T) {
	t.Parallel()
	busy := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	for _, who := range []string{"next handler", "upstream"} {
		for _, wish := range []string{"max-age=1", "no-store"} {
			r := httptest.NewRequest(http.MethodGet, "/fhir/R4/ValueSet/$expand?url="+foreign, nil)
			r.Header.Set("Cache-Control", wish)
			if response := newSiteBefore(t, who, settings{}, busy).send(r); response.Header.Get("Retry-After") != "7" || response.StatusCode != http.StatusServiceUnavailable {
				t.Errorf("%s, %s: %d %v", who, wish, response.StatusCode, response.Header)
			}
		}
	}
}

// TestNewFilterDuringOutage checks that an expired full expansion is used for a new filter while the upstream is down.
func TestNewFilterDuringOutage(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		stale time.Duration
		want  int
	}{"stale": {time.Hour, http.StatusOK}, "no stale": {0, http.StatusBadGateway}} {
		for _, off := range []bool{false, true} {
			var down atomic.Bool
			wholes := &remote.FullExpansions{FetchAfter: 1, TTL: time.Nanosecond, MaxStale: tt.stale}
			g := newSiteBefore(t, "upstream", settings{off: off, wholes: wholes}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if down.Load() {
					w.WriteHeader(http.StatusBadGateway)
					return
				}
				w.Header().Set("Content-Type", "application/fhir+json")
				_, _ = io.WriteString(w, expansionOf(foreign, "theirs"))
			}))
			g.expand(foreign + "&count=5&filter=t")
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			for n := 0; n == 0 && ctx.Err() == nil; { // waits for the background fetch
				n, _ = wholes.CacheUsage()
			}
			cancel()
			down.Store(true)
			for range 2 {
				got := g.expand(foreign + "&count=5&filter=the")
				body := read(t, got)
				if got.StatusCode != tt.want || (tt.want == http.StatusOK) != strings.Contains(body, `"code":"theirs"`) {
					t.Errorf("%s, off=%t: got %d %s", name, off, got.StatusCode, body)
				}
			}
		}
	}
}
