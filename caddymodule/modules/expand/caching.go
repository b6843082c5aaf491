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

	// Who shares the answers of the next handler, which may depend on who asks: with `user`, only requests of the same
	// person, client and scope; with `client`, all users of a client; with `none`, everybody. Answers made here or by
	// an upstream are always shared. Default: `user`.
	VaryBy string `json:"vary_by,omitempty"`

	// Request headers that the next handler's answers depend on. They become part of the cache key and are passed on;
	// others are not, apart from `Accept`, `Accept-Language`, `Authorization`, `Cookie` and those of tracing. Default:
	// none.
	VaryHeaders []string `json:"vary_headers,omitempty"`

	// The timeout of a request to the next handler for an answer that will be cached, and of one to a terminology server, up to
	// the end of the answer. Default: 30s; 10s for terminology servers.
	Timeout caddy.Duration `json:"timeout,omitempty"`

	// A terminology server to ask instead of the next handler. Default: none.
	Upstream *Upstream `json:"upstream,omitempty"`

	// Servers to ask about some code systems, before the upstream and the next handler. The longest matching prefix
	// counts. Default: none.
	Routes []UpstreamRoute `json:"routes,omitempty"`

	// Fetch unknown value sets and code systems from the next handler on first need, by their canonical URL, and
	// expand here. Default: false.
	BackendDefinitions bool `json:"backend_definitions,omitempty"`
}

func (c *Caching) cacheOptions() cache.Options {
	return cache.Options{
		MaxSize: c.MaxSize, TTL: time.Duration(c.TTL),
		StaleIfError: time.Duration(c.Stale), StaleWhileRevalidate: time.Duration(c.StaleWhileRevalidate),
		Timeout: c.timeout(),
	}
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
		"ttl":         option.OrOff(&c.CacheOff, option.Duration(&c.TTL)),
		"max_size":    option.Size(&c.MaxSize),
		"stale":       option.UpToTwo(option.ParseDuration(&c.Stale), option.ParseDuration(&c.StaleWhileRevalidate)),
		"vary_by":     option.Word(&c.VaryBy, option.OneOf("user", "client", "none")),
		"vary_header": option.Words(&c.VaryHeaders, nil),
		"timeout":     option.Duration(&c.Timeout),
		"upstream":    c.parseUpstream,
		"route":       c.parseRoute,
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
