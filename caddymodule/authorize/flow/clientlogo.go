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
	logosAtOnce  = 4         // concurrent fetches
	logosKept    = 16 << 20  // cache size in bytes
	logoKept     = time.Hour // cache lifetime
	noLogoKept   = time.Minute
	costOfNoLogo = 1 << 10 // accounted size of a cache entry without a logo, in bytes
)

// clientLogos serves the logos of apps that registered themselves (logo_uri, RFC 7591 §2), so that
// browsers send no requests to the app. Logos are fetched like a jwks_uri, and only images are served.
type clientLogos struct {
	responder *endpoint.Responder
	clients   *client.Registry
	turns     *fairqueue.Queue
	kept      boundedcache.Cache[string, keptLogo] // by logo_uri
}

type keptLogo struct {
	logo  *page.Logo // nil: fetching failed
	until time.Time
}

func newClientLogos(responder *endpoint.Responder, clients *client.Registry) *clientLogos {
	e := &clientLogos{responder: responder, clients: clients, turns: fairqueue.New(logosAtOnce)}
	e.kept.MaxCost = logosKept
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

// logo returns the logo of a client, or nil.
func (e *clientLogos) logo(ctx context.Context, clientID string) (*page.Logo, error) {
	c, err := e.clients.Find(ctx, clientID)
	if err != nil || c == nil || c.Links.Logo == "" {
		return nil, err
	}
	if known, ok := e.known(c); ok {
		return known, nil
	}
	leave, err := e.turns.Enter(ctx, c.ID)
	if err != nil {
		return nil, err
	}
	defer leave()
	if known, ok := e.known(c); ok { // fetched while waiting
		return known, nil
	}
	return e.fetch(ctx, c), nil
}

func (e *clientLogos) known(c *client.Client) (*page.Logo, bool) {
	known, ok := e.kept.Get(c.Links.Logo)
	return known.logo, ok && time.Now().Before(known.until)
}

// fetch fetches a logo and caches the result, including failures.
func (e *clientLogos) fetch(ctx context.Context, c *client.Client) *page.Logo {
	var logo *page.Logo
	image, err := c.FetchLogo(ctx, page.MaxLogo)
	if err == nil {
		logo, err = page.NewLogo(image)
	}
	if err != nil {
		e.responder.Logger.WarnContext(ctx, "the logo of a registered client could not be had", "client_id", c.ID, "error", err)
		e.kept.Put(c.Links.Logo, keptLogo{until: time.Now().Add(noLogoKept)}, costOfNoLogo)
		return nil
	}
	e.kept.Put(c.Links.Logo, keptLogo{logo, time.Now().Add(logoKept)}, int64(len(image)+costOfNoLogo))
	return logo
}
