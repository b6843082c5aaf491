package caddymodule

import (
	"cmp"
	"net/url"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/rewrite"
)

// place is what is known of the requests that reach a block of the configuration.
type place struct {
	server   *caddyhttp.Server
	hosts    []string // none: all
	paths    []string // patterns; none: all, or not known
	stripped string   // what was taken off the path
	open     *Expand  // an earlier handler without a guard before it
	guarded  bool     // there is an earlier fhir_bearer for all paths
	guards   []string // the path patterns of an earlier fhir_bearer for some
}

// String names the site.
func (at place) String() string {
	if len(at.hosts) > 0 {
		return strings.Join(at.hosts, ", ")
	}
	return strings.Join(at.server.Listen, ", ")
}

// within is the place behind the matchers of a route.
func (at place) within(route *caddyhttp.Route) place {
	hosts, paths := matched(route)
	if len(hosts) > 0 {
		at.hosts = hosts
	}
	if len(paths) > 0 {
		at.paths = paths
	}
	return at
}

// matched are the hosts and paths of a route's matchers.
func matched(route *caddyhttp.Route) (hosts, paths []string) {
	for _, set := range route.MatcherSets {
		for _, matcher := range set {
			switch m := matcher.(type) {
			case *caddyhttp.MatchHost:
				hosts = append(hosts, *m...)
			case *caddyhttp.MatchPath:
				paths = append(paths, *m...)
			}
		}
	}
	return hosts, paths
}

// rewritten is the place behind a rewrite, which changes the paths.
func (at place) rewritten(by *rewrite.Rewrite) place {
	at.paths = nil
	at.stripped += strings.TrimSuffix(by.StripPathPrefix, "/")
	return at
}

// isGuarded reports whether there is an earlier fhir_bearer for all of the paths.
func (at place) isGuarded() bool {
	return at.guarded || len(at.paths) > 0 && !slices.ContainsFunc(at.paths, func(pattern string) bool {
		return !slices.ContainsFunc(at.guards, func(guard string) bool {
			prefix, open := strings.CutSuffix(guard, "*")
			return pattern == guard || open && strings.HasPrefix(pattern, prefix)
		})
	})
}

// isOf reports whether requests to the issuer's address reach this place. A site without TLS is behind a proxy, which
// has a port of its own.
func (at place) isOf(issuer string) bool {
	u, err := url.Parse(issuer)
	if err != nil {
		return false
	}
	port := cmp.Or(u.Port(), "443")
	hosts := caddyhttp.MatchHost(at.hosts)
	named := len(hosts) == 0 || slices.ContainsFunc(hosts, func(pattern string) bool { return hostFits(u.Hostname(), pattern) })
	return named && (len(at.server.TLSConnPolicies) == 0 || slices.ContainsFunc(at.server.Listen, func(address string) bool {
		return strings.HasSuffix(address, ":"+port)
	}))
}

// hostFits compares as Caddy's host matcher does; a placeholder matches any host.
func hostFits(host, pattern string) bool {
	labels, patterns := strings.Split(host, "."), strings.Split(strings.Trim(pattern, "[]"), ".")
	return strings.Contains(pattern, "{") || len(labels) == len(patterns) && !slices.ContainsFunc(patterns, func(p string) bool {
		label := labels[0]
		labels = labels[1:]
		return p != "*" && !strings.EqualFold(p, label)
	})
}
