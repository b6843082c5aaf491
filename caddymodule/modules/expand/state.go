package expand

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/metrics"
	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/cache"
	"github.com/caddy-fhir/caddy-fhir/terminology/dispatch"
	"github.com/caddy-fhir/caddy-fhir/terminology/remote"
)

// pooledState is the state that a fhir_expand keeps over reloads.
type pooledState struct {
	*dispatch.State
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
		return &pooledState{dispatch.NewState(o), key, peers}, nil
	})
	if err != nil {
		return nil, err
	}
	return pooled.(*pooledState), nil
}

// stateOptions are the options of the state that need no context.
func (h *Expand) stateOptions() (o dispatch.StateOptions) {
	if !h.CacheOff {
		o.Cache = cache.New(h.cacheOptions())
	}
	o.Wholes = &remote.Wholes{MaxAnswer: h.MaxEntries, TTL: time.Duration(h.TTL), MaxStale: time.Duration(h.Stale)}
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
		if fallback, secrets, err = c.Upstream.Server(c); err != nil {
			return nil, "", err
		}
	}
	var list []remote.Route
	for i := range c.Routes {
		server, more, err := c.Routes[i].Server(c)
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

// Caches keeps caches of expansions over reloads, for the handlers, the metrics and the admin API.
var Caches = caddy.NewUsagePool()

// Cache is a cache of expansions as the metrics and the admin API use it.
type Cache interface {
	// End removes expansions, and returns their number.
	End(dispatch.Ending) int

	// Statistics are counted from the start of the process.
	Statistics() dispatch.Statistics
}

// retiredCaches sums up the counters of released caches, so that a reload does not reset the metrics.
var retiredCaches struct {
	sync.Mutex
	sum dispatch.Statistics
}

func retire(s dispatch.Statistics) {
	retiredCaches.Lock()
	defer retiredCaches.Unlock()
	retiredCaches.sum = retiredCaches.sum.Plus(dispatch.Statistics{Hits: s.Hits, Misses: s.Misses, Stale: s.Stale, Evictions: s.Evictions})
}

func retired() dispatch.Statistics {
	retiredCaches.Lock()
	defer retiredCaches.Unlock()
	return retiredCaches.sum
}

// EachCache calls do for each cache and returns their number.
func EachCache(do func(Cache)) (n int) {
	Caches.Range(func(_, value any) bool {
		if c, ok := value.(Cache); ok {
			do(c)
			n++
		}
		return true
	})
	return n
}

// cacheCollector reads the counters of the caches when metrics are collected.
type cacheCollector struct{}

var (
	cacheRequests  = prometheus.NewDesc("caddy_fhir_expansion_cache_requests_total", "Look-ups in the cache of expansions.", []string{"result"}, nil)
	cacheEvictions = prometheus.NewDesc("caddy_fhir_expansion_cache_evictions_total", "Expansions that made room for others.", nil, nil)
	cacheEntries   = prometheus.NewDesc("caddy_fhir_expansion_cache_entries", "Expansions in the cache.", nil, nil)
	pulledBytes    = prometheus.NewDesc("caddy_fhir_expansion_pulled_bytes", "Memory that expansions take which were fetched whole from terminology servers.", nil, nil)
	cacheBytes     = prometheus.NewDesc("caddy_fhir_expansion_cache_bytes", "Memory that the cache of expansions takes.", nil, nil)
)

func (cacheCollector) Describe(to chan<- *prometheus.Desc) {
	to <- cacheRequests
	to <- cacheEvictions
	to <- cacheEntries
	to <- cacheBytes
	to <- pulledBytes
}

func (cacheCollector) Collect(to chan<- prometheus.Metric) {
	all := retired()
	if EachCache(func(c Cache) { all = all.Plus(c.Statistics()) }) == 0 {
		return
	}
	for result, n := range map[string]uint64{"hit": all.Hits, "miss": all.Misses, "stale": all.Stale} {
		to <- prometheus.MustNewConstMetric(cacheRequests, prometheus.CounterValue, float64(n), result)
	}
	to <- prometheus.MustNewConstMetric(cacheEvictions, prometheus.CounterValue, float64(all.Evictions))
	to <- prometheus.MustNewConstMetric(cacheEntries, prometheus.GaugeValue, float64(all.Entries))
	to <- prometheus.MustNewConstMetric(cacheBytes, prometheus.GaugeValue, float64(all.Bytes))
	to <- prometheus.MustNewConstMetric(pulledBytes, prometheus.GaugeValue, float64(all.PulledBytes))
}

var _ = metrics.Add(cacheCollector{})
