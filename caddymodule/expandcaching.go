package caddymodule

import (
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-fhir/caddy-fhir/terminology/cache"
)

// ExpandCaching says whom fhir_expand asks for what it does not know, and how
// answers are kept.
type ExpandCaching struct {
	// How long an answer is fresh that does not say so itself, and at most for how
	// long one is that does. Default: 1h.
	TTL caddy.Duration `json:"ttl,omitempty"`

	// Keep no answers. Default: they are kept.
	CacheOff bool `json:"cache_off,omitempty"`

	// How much memory the answers that are kept may take, in bytes: bodies, their
	// compressed forms and all that is needed to find them. Default: 67108864 (64
	// MiB).
	MaxSize int64 `json:"max_size,omitempty"`

	// How long past its time an answer is given where no new one can be had (RFC
	// 5861 §4). Default: not at all.
	Stale caddy.Duration `json:"stale,omitempty"`

	// How long past its time an answer is given at once, while a new one is asked
	// for (RFC 5861 §3). Default: a new one is waited for.
	StaleWhileRevalidate caddy.Duration `json:"stale_while_revalidate,omitempty"`

	// For how long clients, and caches between, may use an answer without asking
	// whether it is still good; no invalidation reaches them in that time. Default:
	// they ask each time, and mostly hear that it is.
	MaxAge caddy.Duration `json:"max_age,omitempty"`

	// How long it is remembered that there is no answer. Default: 10s.
	NegativeTTL caddy.Duration `json:"negative_ttl,omitempty"`

	// How long a failure of a server is told to all who ask the same, before the
	// server is asked again. One that says when (`Retry-After`) is left alone until
	// then, for five minutes at most. Default: 1s.
	FailureTTL caddy.Duration `json:"failure_ttl,omitempty"`

	// Tell nobody else of a failure but those who wait for the same answer. Default:
	// others are told, as `failure_ttl` has it.
	FailureTTLOff bool `json:"failure_ttl_off,omitempty"`

	// Who shares the answers of the next handler, which may depend on who asks:
	// `user`: nobody else gets them, nor the same person by another client or with
	// another scope; `client`: the users of one client share them;
	// `none`: all do. Those that are made here, and those of an upstream, are the
	// same for all. Default: `user`.
	VaryBy string `json:"vary_by,omitempty"`

	// Headers that the next handler's answers depend on. They are part of what an
	// answer is found by, and are passed on; others are not, beside `Accept`,
	// `Accept-Language`, `Authorization`, `Cookie` and those of tracing. Default:
	// none.
	VaryHeaders []string `json:"vary_headers,omitempty"`

	// Keep answers over restarts. Default: they are not.
	Persist bool `json:"persist,omitempty"`

	// The folder to keep them in. Default: `fhir_expansions` in Caddy's data folder.
	PersistFolder string `json:"persist_folder,omitempty"`

	// How long the next handler may take to make an answer that is to be kept.
	// Default: 30s.
	Timeout caddy.Duration `json:"timeout,omitempty"`

	// A terminology server that is asked in place of the next handler. Default:
	// none.
	Upstream *Upstream `json:"upstream,omitempty"`

	// Servers that are asked about some code systems, before the upstream and the
	// next handler. Of several the one with the longest prefix counts. Default:
	// none.
	Routes []UpstreamRoute `json:"routes,omitempty"`

	// Fetch value sets and code systems that are not known here from the next
	// handler when they are first needed, by their canonical, and expand here.
	// Default: they are not.
	BackendDefinitions bool `json:"backend_definitions,omitempty"`

	// After how many different filters an upstream's value set is fetched whole and
	// searched here from then on. Default: 5.
	PullThrough int `json:"pull_through,omitempty"`

	// How many entries such a value set may have. Default: 50000.
	PullThroughMax int `json:"pull_through_max,omitempty"`

	// Ask the upstream for each filter. Default: its value sets are fetched whole,
	// as `pull_through` has it.
	PullThroughOff bool `json:"pull_through_off,omitempty"`

	// Within which time it is noticed that files of definitions have changed.
	// Default: 5s.
	WatchInterval caddy.Duration `json:"watch_interval,omitempty"`
}

const defaultNextTimeout = 30 * time.Second

// cacheOptions are those of the cache.
func (c *ExpandCaching) cacheOptions() cache.Options {
	failureTTL := time.Duration(c.FailureTTL)
	if c.FailureTTLOff {
		failureTTL = -1
	}
	return cache.Options{
		FailureTTL: failureTTL,
		MaxSize:    c.MaxSize, TTL: time.Duration(c.TTL), NegativeTTL: time.Duration(c.NegativeTTL),
		StaleIfError: time.Duration(c.Stale), StaleWhileRevalidate: time.Duration(c.StaleWhileRevalidate),
		Timeout: c.longest(), MaxAge: time.Duration(c.MaxAge),
	}
}

// longest is how long whoever is asked may take.
func (c *ExpandCaching) longest() time.Duration {
	longest := c.timeout()
	if c.Upstream != nil {
		longest = max(longest, c.Upstream.timeout())
	}
	for i := range c.Routes {
		longest = max(longest, c.Routes[i].timeout())
	}
	return longest
}

func (c *ExpandCaching) timeout() time.Duration {
	if c.Timeout == 0 {
		return defaultNextTimeout
	}
	return time.Duration(c.Timeout)
}

var variations = map[string]cache.VaryBy{"": cache.VaryByUser, "user": cache.VaryByUser, "client": cache.VaryByClient, "none": cache.VaryByNone}

// subdirectives are those of fhir_expand that are about asking and keeping. Syntax:
//
//	ttl <duration>|off
//	max_size <size>
//	stale <duration> [<while asking>]
//	max_age <duration>
//	negative_ttl <duration>
//	failure_ttl <duration>|off
//	vary_by user|client|none
//	vary_header <names...>
//	persist [<folder>]
//	timeout <duration>
//	upstream <url> { … }
//	route <prefix> <url> { … }
//	pull_through <filters> [<entries>]|off
//	watch_interval <duration>
func (c *ExpandCaching) subdirectives() subdirectives {
	return subdirectives{
		"ttl":            orOff(&c.CacheOff, duration(&c.TTL)),
		"max_size":       size(&c.MaxSize),
		"stale":          c.parseStale,
		"max_age":        duration(&c.MaxAge),
		"negative_ttl":   duration(&c.NegativeTTL),
		"failure_ttl":    orOff(&c.FailureTTLOff, duration(&c.FailureTTL)),
		"vary_by":        word(&c.VaryBy, oneOf("user", "client", "none")),
		"vary_header":    words(&c.VaryHeaders, nil),
		"persist":        c.parsePersist,
		"timeout":        duration(&c.Timeout),
		"upstream":       c.parseUpstream,
		"route":          c.parseRoute,
		"pull_through":   orOff(&c.PullThroughOff, c.parsePullThrough),
		"watch_interval": duration(&c.WatchInterval),
	}
}

func (c *ExpandCaching) parsePersist(d *caddyfile.Dispenser) error {
	c.Persist = true
	if d.CountRemainingArgs() == 0 {
		return nil
	}
	return word(&c.PersistFolder, nil)(d)
}

func (c *ExpandCaching) parseUpstream(d *caddyfile.Dispenser) error {
	c.Upstream = new(Upstream)
	if !d.Args(&c.Upstream.URL) {
		return d.ArgErr()
	}
	return c.Upstream.parse(d)
}

func (c *ExpandCaching) parseRoute(d *caddyfile.Dispenser) error {
	var r UpstreamRoute
	if !d.Args(&r.Prefix, &r.URL) {
		return d.ArgErr()
	}
	err := r.parse(d)
	c.Routes = append(c.Routes, r)
	return err
}

func (c *ExpandCaching) parseStale(d *caddyfile.Dispenser) error {
	stale, whileAsking, err := oneOrTwo(d)
	if err != nil {
		return err
	}
	err = parseDuration(&c.Stale, stale)
	if err == nil && whileAsking != "" {
		err = parseDuration(&c.StaleWhileRevalidate, whileAsking)
	}
	if err != nil {
		return d.WrapErr(err)
	}
	return nil
}

func (c *ExpandCaching) parsePullThrough(d *caddyfile.Dispenser) error {
	filters, entries, err := oneOrTwo(d)
	if err != nil {
		return err
	}
	err = parseNumber(&c.PullThrough, filters)
	if err == nil && entries != "" {
		err = parseNumber(&c.PullThroughMax, entries)
	}
	if err != nil {
		return d.WrapErr(err)
	}
	return nil
}
