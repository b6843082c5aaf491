package placement

import (
	"cmp"
	"net"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/rewrite"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/httporigin"
)

// place is what is known of the requests that reach a block of the configuration.
type place struct {
	server   *caddyhttp.Server
	hosts    []string // none: all
	paths    []string // patterns; none: all, or not known
	stripped string   // what was taken off the path
	open     Handler  // an earlier handler without a guard before it
	guarded  bool     // there is an earlier fhir_bearer for all paths
	guards   []string // the path patterns of an earlier fhir_bearer for some
	answered []string // the path patterns that something earlier answers
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

// past is the place after a route. What the route answers does not get there.
func (at place) past(route *caddyhttp.Route) place {
	if _, paths := matched(route); len(paths) == 0 {
		if answers(route, "/") {
			at.answered = []string{"*"}
		}
	} else if answers(route, strings.TrimSuffix(paths[0], "*")) {
		at.answered = append(slices.Clone(at.answered), paths...)
	}
	return at
}

// takes reports whether requests for a path get here, as far as the matchers tell.
func (at place) takes(path string) bool { return len(at.paths) == 0 || anyTakes(at.paths, path) }

// anyTakes reports whether a pattern of Caddy's path matcher takes a path. Only a star at its end is understood.
func anyTakes(patterns []string, path string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		prefix, open := strings.CutSuffix(pattern, "*")
		return strings.EqualFold(pattern, path) || open && len(path) >= len(prefix) && strings.EqualFold(path[:len(prefix)], prefix)
	})
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

// mayBeHTTPS reports whether the server has TLS, or trusts a proxy to report it. Caddy exports only whether proxies on Unix
// sockets are trusted.
func (at place) mayBeHTTPS() bool {
	trusted := reflect.ValueOf(at.server).Elem().FieldByName("trustedProxies")
	return len(at.server.TLSConnPolicies) > 0 || at.server.TrustedProxiesUnix || !trusted.IsValid() || !trusted.IsNil()
}

// url is the URL of a path below the address of the site, or empty if the site does not tell it: it needs one name, one
// port, and TLS of its own but on loopback.
func (at place) url(path string) string {
	if len(at.hosts) != 1 || strings.ContainsAny(at.hosts[0], "*{") || len(at.server.Listen) != 1 {
		return ""
	}
	address, err := caddy.ParseNetworkAddress(at.server.Listen[0])
	if err != nil || address.IsUnixNetwork() || address.PortRangeSize() != 1 || address.StartPort == 0 {
		return ""
	}
	scheme, usual := "https", uint(443)
	if len(at.server.TLSConnPolicies) == 0 {
		scheme, usual = "http", 80
	}
	host := strings.Trim(at.hosts[0], "[]")
	if scheme == "http" && !httporigin.IsLoopback(host) {
		return "" // a proxy before it has TLS, and a name of its own
	}
	if address.StartPort != usual {
		host = net.JoinHostPort(host, strconv.Itoa(int(address.StartPort)))
	} else if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return scheme + "://" + host + at.stripped + path
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

// answers reports whether a route answers all requests for a path.
func answers(route *caddyhttp.Route, path string) bool {
	_, patterns := matched(route)
	takes := len(route.MatcherSets) == 0 || anyTakes(patterns, path)
	return takes && slices.ContainsFunc(route.Handlers, func(handler caddyhttp.MiddlewareHandler) bool {
		if nested, ok := handler.(*caddyhttp.Subroute); ok {
			return slices.ContainsFunc(nested.Routes, func(r caddyhttp.Route) bool { return answers(&r, path) })
		}
		module, ok := handler.(caddy.Module)
		return ok && slices.Contains([]caddy.ModuleID{"http.handlers.reverse_proxy", "http.handlers.static_response", "http.handlers.file_server", "http.handlers.fhir_sample"}, module.CaddyModule().ID)
	})
}
