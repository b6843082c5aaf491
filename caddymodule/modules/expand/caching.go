package expand

import (
	"cmp"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
	"github.com/caddy-fhir/caddy-fhir/terminology/cache"
	"github.com/caddy-fhir/caddy-fhir/terminology/remote"
)

// Caching configures whom fhir_expand asks for what it does not know, and how it caches answers.
type Caching struct {
	// The lifetime of an answer that states none, and the longest of any. Default: 1h.
	TTL caddy.Duration `json:"ttl,omitempty"`

	// Do not cache answers. Default: false.
	CacheOff bool `json:"cache_off,omitempty"`

	// The memory for cached answers, their compressed forms and the index, in bytes. Default: 67108864 (64 MiB).
	MaxSize int64 `json:"max_size,omitempty"`

	// How long an expired answer is used if no new one is available (RFC 5861 §4). Default: not at all.
	Stale caddy.Duration `json:"stale,omitempty"`

	// How long an expired answer is used while a new one is requested (RFC 5861 §3). Default: requests wait for the
	// new one.
	StaleWhileRevalidate caddy.Duration `json:"stale_while_revalidate,omitempty"`

	// How long clients and shared caches may use an answer without revalidating it, unreached by invalidations. Default:
	// they revalidate each time.
	MaxAge caddy.Duration `json:"max_age,omitempty"`

	// Who shares the answers of the next handler, which may depend on who asks: with `user`, only requests of the same
	// person, client and scope; with `client`, all users of a client; with `none`, everybody. Answers made here or by
	// an upstream are always shared. Default: `user`.
	VaryBy string `json:"vary_by,omitempty"`

	// Request headers that the next handler's answers depend on. They become part of the cache key and are passed on;
	// others are not, apart from `Accept`, `Accept-Language`, `Authorization`, `Cookie` and those of tracing. Default:
	// none.
	VaryHeaders []string `json:"vary_headers,omitempty"`

	// The timeout of the next handler for an answer that will be cached. Default: 30s.
	Timeout caddy.Duration `json:"timeout,omitempty"`

	// A terminology server to ask instead of the next handler. Default: none.
	Upstream *Upstream `json:"upstream,omitempty"`

	// Servers to ask about some code systems, before the upstream and the next handler. The longest matching prefix
	// counts. Default: none.
	Routes []UpstreamRoute `json:"routes,omitempty"`

	// Fetch unknown value sets and code systems from the next handler on first need, by their canonical URL, and
	// expand here. Default: false.
	BackendDefinitions bool `json:"backend_definitions,omitempty"`

	// After how many different filters a value set of an upstream is fetched whole, to be searched here. Default: 5.
	PullThrough int `json:"pull_through,omitempty"`

	// The maximum number of entries of such a value set. Default: 150000.
	PullThroughMax int `json:"pull_through_max,omitempty"`

	// Ask the upstream for each filter. Default: false.
	PullThroughOff bool `json:"pull_through_off,omitempty"`
}

func (c *Caching) cacheOptions() cache.Options {
	return cache.Options{
		MaxSize: c.MaxSize, TTL: time.Duration(c.TTL),
		StaleIfError: time.Duration(c.Stale), StaleWhileRevalidate: time.Duration(c.StaleWhileRevalidate),
		Timeout: c.longest(), MaxAge: time.Duration(c.MaxAge),
	}
}

// longest is the longest timeout of any server.
func (c *Caching) longest() time.Duration {
	longest := c.timeout()
	if c.Upstream != nil {
		longest = max(longest, c.Upstream.timeout())
	}
	for i := range c.Routes {
		longest = max(longest, c.Routes[i].timeout())
	}
	return longest
}

// maxAnswer is how large an answer of a terminology server may be: so large that a few fit into the cache.
func (c *Caching) maxAnswer() int64 { return max(remote.DefaultMaxAnswer, c.MaxSize/4) }

func (c *Caching) timeout() time.Duration {
	return cmp.Or(time.Duration(c.Timeout), 30*time.Second)
}

var variations = map[string]cache.VaryBy{"": cache.VaryByUser, "user": cache.VaryByUser, "client": cache.VaryByClient, "none": cache.VaryByNone}

// Subdirectives are those of fhir_expand about asking and caching.
func (c *Caching) Subdirectives() option.Block {
	return option.Block{
		"ttl":          option.OrOff(&c.CacheOff, option.Duration(&c.TTL)),
		"max_size":     option.Size(&c.MaxSize),
		"stale":        option.UpToTwo(option.ParseDuration(&c.Stale), option.ParseDuration(&c.StaleWhileRevalidate)),
		"max_age":      option.Duration(&c.MaxAge),
		"vary_by":      option.Word(&c.VaryBy, option.OneOf("user", "client", "none")),
		"vary_header":  option.Words(&c.VaryHeaders, nil),
		"timeout":      option.Duration(&c.Timeout),
		"upstream":     c.parseUpstream,
		"route":        c.parseRoute,
		"pull_through": option.OrOff(&c.PullThroughOff, option.UpToTwo(option.ParseNumber(&c.PullThrough), option.ParseNumber(&c.PullThroughMax))),
	}
}

func (c *Caching) parseUpstream(d *caddyfile.Dispenser) error {
	c.Upstream = new(Upstream)
	if !d.Args(&c.Upstream.URL) {
		return d.ArgErr()
	}
	return c.Upstream.parse(d)
}

func (c *Caching) parseRoute(d *caddyfile.Dispenser) error {
	var r UpstreamRoute
	if !d.Args(&r.Prefix, &r.URL) {
		return d.ArgErr()
	}
	err := r.parse(d)
	c.Routes = append(c.Routes, r)
	return err
}
