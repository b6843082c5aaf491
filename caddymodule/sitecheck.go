package caddymodule

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// siteCheck looks for handlers of ours that stand where they cannot do what they are
// for. Each such place is allowed, and has a reason somewhere; most are mistakes.
type siteCheck struct {
	issuer string

	warnings   []string
	elsewhere  []string // sites with fhir_authorize that are not the issuer's
	authorizes bool     // some site has fhir_authorize
	atIssuer   bool     // the issuer's has
}

// place is what is known of the requests that get to a block of the configuration.
type place struct {
	server  *caddyhttp.Server
	hosts   []string // none: all
	paths   []string // patterns; none: all, or not known
	guarded bool     // fhir_bearer stands before
}

// checkSites returns what is to be said of the sites of a configuration.
func checkSites(app *caddyhttp.App, issuer string) []string {
	c := &siteCheck{issuer: issuer}
	for _, server := range app.Servers {
		c.block(server.Routes, place{server: server})
	}
	switch {
	case !c.authorizes:
		c.warn("there is the global option fhir, but no site has fhir_authorize: apps find nobody at %s to get a token from", issuer)
	case !c.atIssuer:
		c.warn("issuer %s is not the address of a site with fhir_authorize (that is %s): apps are sent to the issuer. Let the two be the same, unless something in front leads from one to the other",
			issuer, strings.Join(c.elsewhere, ", "))
	}
	slices.Sort(c.warnings)
	return c.warnings
}

func (c *siteCheck) warn(format string, arguments ...any) {
	c.warnings = append(c.warnings, fmt.Sprintf(format, arguments...))
}

// block looks at the routes of a block in their order.
func (c *siteCheck) block(routes caddyhttp.RouteList, at place) {
	for i, route := range routes {
		within := at.within(&route)
		for j, handler := range route.Handlers {
			switch h := handler.(type) {
			case *caddyhttp.Subroute:
				c.block(h.Routes, within)
			case *Authorize:
				c.authorize(within)
			case *Bearer:
				c.base("fhir_bearer", h.FHIRBase, within)
				within.guarded = true
				at.guarded = at.guarded || len(route.MatcherSets) == 0
			case *Expand:
				c.base("fhir_expand", h.FHIRBase, within)
				before := caddyhttp.Route{Handlers: route.Handlers[:j]} // Caddy joins routes that have the same matchers
				c.reached(append(slices.Clone(routes[:i]), before), h.FHIRBase, within)
			default:
				if moduleName(h) == "http.handlers.rewrite" {
					at.paths, within.paths = nil, nil // they are other ones from here
				}
			}
		}
	}
}

func moduleName(handler any) caddy.ModuleID {
	if module, ok := handler.(caddy.Module); ok {
		return module.CaddyModule().ID
	}
	return ""
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

// matched are the hosts and the paths of a route's matchers.
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

// String names the site.
func (at place) String() string {
	if len(at.hosts) > 0 {
		return strings.Join(at.hosts, ", ")
	}
	return strings.Join(at.server.Listen, ", ")
}

// authorize looks at a site with fhir_authorize.
func (c *siteCheck) authorize(at place) {
	c.authorizes = true
	if at.isOf(c.issuer) {
		c.atIssuer = true
	} else {
		c.elsewhere = append(c.elsewhere, at.String()+" at "+strings.Join(at.server.Listen, " "))
	}
	if at.guarded {
		c.warn("%s: fhir_bearer stands before fhir_authorize, and asks for a token at the addresses where tokens are to be had: put fhir_authorize before it, or give fhir_bearer a matcher such as %s/*", at, DefaultFHIRBase)
	}
}

// isOf reports whether requests to the issuer's address get here, as far as the
// configuration says. In front of a site without TLS is a proxy, and its port counts.
func (at place) isOf(issuer string) bool {
	u, err := url.Parse(issuer)
	if err != nil {
		return false
	}
	port := u.Port()
	if port == "" {
		port = "443"
	}
	hosts := caddyhttp.MatchHost(at.hosts)
	named := len(hosts) == 0 || slices.ContainsFunc(hosts, func(pattern string) bool { return hostFits(u.Hostname(), pattern) })
	return named && (len(at.server.TLSConnPolicies) == 0 || slices.ContainsFunc(at.server.Listen, func(address string) bool {
		return strings.HasSuffix(address, ":"+port)
	}))
}

// hostFits compares as Caddy's host matcher does; a placeholder may be any.
func hostFits(host, pattern string) bool {
	labels, patterns := strings.Split(host, "."), strings.Split(strings.Trim(pattern, "[]"), ".")
	return strings.Contains(pattern, "{") || len(labels) == len(patterns) && !slices.ContainsFunc(patterns, func(p string) bool {
		label := labels[0]
		labels = labels[1:]
		return p != "*" && !strings.EqualFold(p, label)
	})
}

// base looks whether a handler's FHIR base is where the handler stands.
func (c *siteCheck) base(directive, base string, at place) {
	for _, pattern := range at.paths {
		if prefix := strings.TrimSuffix(pattern, "*"); !strings.Contains(prefix, "*") && prefix != "/" && !below(strings.TrimSuffix(prefix, "/"), base) {
			c.warn("%s: %s stands at %s, but the FHIR base is %s: if the API is elsewhere, say so with fhir_base, in the global option fhir or in %s; else let the matcher be %s %s/*",
				at, directive, pattern, base, directive, base, base)
		}
	}
}

// reached looks whether something before fhir_expand in its block answers what is
// meant for it.
func (c *siteCheck) reached(before caddyhttp.RouteList, base string, at place) {
	operation := strings.ToLower(base + "/ValueSet/$expand")
	if slices.ContainsFunc(before, func(route caddyhttp.Route) bool { return answers(&route, operation) }) {
		c.warn("%s: fhir_expand is never asked, because a handle or route before it in its block answers all below %s: put fhir_expand into that block, before reverse_proxy", at, base)
	}
}

// answers reports whether a route answers a path, whatever is asked.
func answers(route *caddyhttp.Route, path string) bool {
	_, patterns := matched(route)
	takes := len(route.MatcherSets) == 0 || slices.ContainsFunc(patterns, func(pattern string) bool {
		prefix, open := strings.CutSuffix(pattern, "*")
		return open && strings.HasPrefix(path, strings.ToLower(prefix))
	})
	return takes && slices.ContainsFunc(route.Handlers, func(handler caddyhttp.MiddlewareHandler) bool {
		if nested, ok := handler.(*caddyhttp.Subroute); ok {
			return slices.ContainsFunc(nested.Routes, func(r caddyhttp.Route) bool { return answers(&r, path) })
		}
		return slices.Contains([]caddy.ModuleID{"http.handlers.reverse_proxy", "http.handlers.static_response", "http.handlers.file_server"}, moduleName(handler))
	})
}
