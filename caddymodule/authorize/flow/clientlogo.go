package flow

import (
	"context"
	"net/http"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/boundedcache"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fairqueue"
)

const (
	maxLogoFetches      = 4        // concurrent fetches
	logoCacheSize       = 16 << 20 // cache size in bytes
	logoCacheLifetime   = time.Hour
	missingLogoLifetime = time.Minute
	missingLogoSize     = 1 << 10 // assumed size in bytes of a cache entry without a logo
)

// clientLogos serves the logos of apps that registered themselves (logo_uri, RFC 7591 §2), so that browsers send no requests to
// the app. Logos are fetched under the same restrictions as a jwks_uri, and only images are served.
type clientLogos struct {
	responder  *endpoint.Responder
	clients    *client.Registry
	fetchQueue *fairqueue.Queue
	cache      boundedcache.Cache[string, cachedLogo] // keys are logo_uri values
}

type cachedLogo struct {
	logo    *page.Logo // nil if fetching failed
	expires time.Time
}

func newClientLogos(responder *endpoint.Responder, clients *client.Registry) *clientLogos {
	e := &clientLogos{responder: responder, clients: clients, fetchQueue: fairqueue.New(maxLogoFetches)}
	e.cache.MaxCost = logoCacheSize
	return e
}

func (e *clientLogos) serve(w http.ResponseWriter, r *http.Request) {
	logo, err := e.logo(r.Context(), r.URL.Query().Get("client_id"))
	switch {
	case err != nil:
		e.responder.WriteError(w, r, err)
	case logo == nil:
		http.NotFound(w, r)
	default:
		w.Header().Set("Cache-Control", "private, max-age=3600")
		logo.ServeHTTP(w, r)
	}
}

// logo returns the logo of a client, or nil if it has none.
func (e *clientLogos) logo(ctx context.Context, clientID string) (*page.Logo, error) {
	c, err := e.clients.Find(ctx, clientID)
	if err != nil || c == nil || c.Links.Logo == "" {
		return nil, err
	}
	if cached, ok := e.findCached(c); ok {
		return cached, nil
	}
	release, err := e.fetchQueue.Acquire(ctx, c.ID)
	if err != nil {
		return nil, err
	}
	defer release()
	if cached, ok := e.findCached(c); ok { // another request fetched the logo in the meantime
		return cached, nil
	}
	return e.fetch(ctx, c), nil
}

func (e *clientLogos) findCached(c *client.Client) (*page.Logo, bool) {
	cached, ok := e.cache.Get(c.Links.Logo)
	return cached.logo, ok && time.Now().Before(cached.expires)
}

// fetch fetches a logo and caches the result, including failures.
func (e *clientLogos) fetch(ctx context.Context, c *client.Client) *page.Logo {
	var logo *page.Logo
	image, err := c.FetchLogo(ctx, page.MaxLogoSize)
	if err == nil {
		logo, err = page.NewLogo(image)
	}
	if err != nil {
		e.responder.Logger.WarnContext(ctx, "client logo not fetched", "client_id", c.ID, "error", err)
		e.cache.Put(c.Links.Logo, cachedLogo{expires: time.Now().Add(missingLogoLifetime)}, missingLogoSize)
		return nil
	}
	e.cache.Put(c.Links.Logo, cachedLogo{logo, time.Now().Add(logoCacheLifetime)}, int64(len(image)+missingLogoSize))
	return logo
}
