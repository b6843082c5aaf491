package expand

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/cache"
	"github.com/caddy-fhir/caddy-fhir/terminology/front"
	"github.com/caddy-fhir/caddy-fhir/terminology/remote"
)

// pooledState is the state that a fhir_expand keeps over reloads.
type pooledState struct {
	*front.State
	key   string // in the pool, made of all settings
	peers *Peers // nil: there are none
}

// newState makes the state, or takes it over from the previous configuration if no setting has changed.
func newState(ctx caddy.Context, h *Expand) (*pooledState, error) {
	settings, err := settingsOf(ctx, h)
	if err != nil {
		return nil, err
	}
	routes, secrets, err := h.newRoutes()
	if err != nil {
		return nil, err
	}
	peers, err := expansionPeersOf(ctx)
	if err != nil {
		return nil, err
	}
	key := fmt.Sprintf("%x %p", sha256.Sum256(append(settings, secrets...)), peers) // new peers know nothing of what was stored before
	pooled, _, err := Caches.LoadOrNew(key, func() (caddy.Destructor, error) {
		o := h.stateOptions()
		o.Routes, o.Announce = routes, peers.announce()
		if o.Wholes != nil {
			o.Wholes.Logger = ctx.Slogger()
		}
		if o.Fetched != nil {
			o.Fetched.Logger = ctx.Slogger()
		}
		return &pooledState{front.NewState(o), key, peers}, nil
	})
	if err != nil {
		return nil, err
	}
	return pooled.(*pooledState), nil
}

// stateOptions are the options of the state that need no context.
func (h *Expand) stateOptions() (o front.StateOptions) {
	if !h.CacheOff {
		o.Cache = cache.New(h.cacheOptions())
	}
	if !h.PullThroughOff {
		o.Wholes = &remote.Wholes{
			After: h.PullThrough, MaxEntries: h.PullThroughMax, MaxAnswer: h.MaxEntries, TTL: time.Duration(h.TTL), MaxStale: time.Duration(h.Stale),
		}
	}
	if h.BackendDefinitions {
		o.Backend = remote.Handler{Base: h.FHIRBase, Timeout: h.timeout()}
		o.Fetched = &terminology.Fetched{
			TTL: time.Duration(h.TTL), MaxStale: max(time.Duration(h.Stale), 1), // 0 would be its default
		}
	}
	return o
}

func (s *pooledState) Destruct() error {
	retire(s.Statistics())
	return nil
}

func (s *pooledState) release() error {
	_, err := Caches.Delete(s.key)
	return err
}

// settingsOf returns the settings of a handler and of those around it, any of which may decide who is let in and what the
// next handler answers. Other sites are left out if they can be told apart.
func settingsOf(ctx caddy.Context, h *Expand) ([]byte, error) {
	var app caddy.Module
	around := []any{h}
	for _, module := range ctx.Modules() {
		switch module.(type) {
		case *caddyhttp.Subroute:
			around = append(around, module)
		case *caddyhttp.App:
			app = module
		}
	}
	if len(around) == 1 {
		around = append(around, app)
	}
	return json.Marshal(around)
}

// newRoutes makes the terminology servers; nil if there are none.
func (c *Caching) newRoutes() (_ *remote.Routes, secrets string, err error) {
	if c.Upstream == nil && len(c.Routes) == 0 {
		return nil, "", nil
	}
	var fallback *remote.Server
	if c.Upstream != nil {
		if fallback, secrets, err = c.Upstream.Server(c.maxAnswer()); err != nil {
			return nil, "", err
		}
	}
	var list []remote.Route
	for i := range c.Routes {
		server, more, err := c.Routes[i].Server(c.maxAnswer())
		if err != nil {
			return nil, "", err
		}
		list, secrets = append(list, remote.Route{Prefix: c.Routes[i].Prefix, Server: server}), secrets+more
	}
	routes, err := remote.NewRoutes(fallback, list...)
	return routes, secrets, err
}

var (
	_ Cache            = (*pooledState)(nil)
	_ caddy.Destructor = (*pooledState)(nil)
)
