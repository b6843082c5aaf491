package caddymodule

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/remote"
)

// backend is the FHIR server behind the next handler, as a source of definitions.
// It is asked without the credentials of any user.
type backend struct {
	fetched *terminology.Fetched
	asker   remote.Definitions
	next    atomic.Pointer[behind]

	mu   sync.Mutex
	url  map[string]string // of what was fetched, by type and id
	lost bool              // there are answers made of what is not in it
}

// behind is how the next handler is reached.
type behind struct {
	next   caddyhttp.Handler
	server *caddyhttp.Server
	host   string
}

func newBackend(h *Expand, backoff *remote.Backoff, logger *slog.Logger) *backend {
	b := &backend{url: map[string]string{}}
	b.asker.Asker = &remote.Handler{Base: h.FHIRBase, Serve: b.serve, Timeout: h.timeout(), MaxAnswer: h.MaxBody, Backoff: backoff}
	b.fetched = &terminology.Fetched{
		Source: b, TTL: time.Duration(h.TTL), MissingTTL: time.Duration(h.NegativeTTL),
		MaxStale: max(time.Duration(h.Stale), 1), Logger: logger, // 0 would be its default
	}
	return b
}

// definitions returns what the handler of a library is told of it.
func (b *backend) definitions() *terminology.Fetched {
	if b == nil {
		return nil
	}
	return b.fetched
}

// see notes how the next handler is reached, which only a request knows.
func (b *backend) see(r *http.Request, next caddyhttp.Handler) {
	if b == nil {
		return
	}
	server, _ := r.Context().Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server)
	b.next.Store(&behind{next, server, r.Host})
	b.fetched.Renew()
}

// serve has the next handler answer a request of our own.
func (b *backend) serve(w http.ResponseWriter, r *http.Request) error {
	known := b.next.Load()
	r.Host, r.RemoteAddr = known.host, "127.0.0.1:0"
	return known.next.ServeHTTP(w, caddyhttp.PrepareRequest(r, caddy.NewReplacer(), w, known.server))
}

// maxKnownURLs bounds how many references are remembered.
const maxKnownURLs = 100_000

// Definitions implements terminology.Source. It remembers what was at which id, so
// that a write there tells what it replaces.
func (b *backend) Definitions(ctx context.Context, m terminology.Missing) ([]jsontext.Value, error) {
	list, err := b.asker.Definitions(ctx, m)
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, resource := range list {
		switch d, ok := readHead(resource); {
		case !ok:
		case len(b.url) < maxKnownURLs:
			b.url[d.reference()] = d.URL
		default:
			b.lost = true
		}
	}
	return list, err
}

// begin forgets what was at which id, as no answers will be left that are made of it.
func (b *backend) begin() {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.url)
	b.lost = false
}

// remembersNot notes that there are answers from before a restart: at which id what
// they were made of is, is not known.
func (b *backend) remembersNot() {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lost = true
}

// forget lets go of a definition, by its canonical or by type and id; an empty name
// means all. It returns the canonical that was known for a type and id, and false
// where it may have been forgotten.
func (b *backend) forget(name string) (url string, known bool) {
	if b == nil {
		return "", true
	}
	if name == "" {
		b.begin()
	}
	b.fetched.Forget(name)
	if !strings.Contains(name, "/") {
		return "", true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	url, known = b.url[name]
	return url, known || !b.lost
}

var _ terminology.Source = (*backend)(nil)
