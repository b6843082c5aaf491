package placement

import (
	"cmp"
	"fmt"
	"net"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/rewrite"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/httporigin"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fhirbase"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// siteCheck finds handlers of caddy-fhir in positions where they have no effect, and routes that bypass them. Both
// are valid configurations, but usually mistakes.
type siteCheck struct {
	app fhirbase.Addressed // nil without the fhir app

	warnings   []string
	errs       []error        // configurations that cannot work
	bases      map[any]string // URL of the API by handler, where the site determines it
	elsewhere  []string       // sites with fhir_authorize other than the issuer's
	authorizes bool           // whether any site has fhir_authorize
	atIssuer   bool           // whether the issuer's site has fhir_authorize
	proxies    proxies
}

// checkSites checks the sites of a configuration. fhir is the fhir app, or nil.
func checkSites(app *caddyhttp.App, fhir fhirbase.Addressed) *siteCheck {
	c := &siteCheck{app: fhir, bases: map[any]string{}, proxies: proxies{guarded: map[string]bool{}, guards: map[string][]string{}}}
	for _, server := range app.Servers {
		c.block(server.Routes, place{server: server})
	}
	c.checkIssuer()
	c.warnings = append(c.warnings, c.proxies.warnings()...)
	slices.Sort(c.warnings)
	c.warnings = slices.Compact(c.warnings)
	return c
}

func (c *siteCheck) warn(format string, arguments ...any) {
	c.warnings = append(c.warnings, fmt.Sprintf(format, arguments...))
}

// checkIssuer checks that the authorization server is served at the issuer's address.
func (c *siteCheck) checkIssuer() {
	if c.app == nil || c.atIssuer {
		return
	}
	issuer, _ := c.app.Address()
	switch {
	case !c.authorizes:
		c.warn("no site has fhir_authorize, although the global option fhir is set: apps find no token endpoint at %s; add fhir_authorize to that site", issuer)
	default:
		c.warn("issuer %s is not the address of a site with fhir_authorize (that is %s): apps are sent to the issuer. Let the two be the same, unless something in front leads from one to the other",
			issuer, strings.Join(c.elsewhere, ", "))
	}
}

// block checks the routes of a block in order.
func (c *siteCheck) block(routes caddyhttp.RouteList, at place) {
	for i, route := range routes {
		within := at.within(&route)
		for j, handler := range route.Handlers {
			before := append(slices.Clone(routes[:i]), caddyhttp.Route{Handlers: route.Handlers[:j]}) // Caddy merges routes with the same matchers
			switch h := handler.(type) {
			case *caddyhttp.Subroute:
				c.block(h.Routes, within)
			case Authorizer:
				c.authorize(h, within)
				c.reached(namedOf(h, within), "/oauth2/authorize", before)
			case Guard:
				c.guard(h, within, before)
				within.guarded = true
				at = at.behind(&route)
			case Handler:
				c.answerer(h, within, before)
				if len(route.MatcherSets) == 0 && !within.isGuarded() {
					at.open, within.open = h, h
				}
			case *reverseproxy.Handler:
				c.proxies.add(h, within)
			case *rewrite.Rewrite:
				within = within.rewritten(h)
				if len(route.MatcherSets) == 0 {
					at = at.rewritten(h)
				}
			}
		}
		at = at.past(&route)
	}
}

// behind returns the place after a route with fhir_bearer.
func (at place) behind(route *caddyhttp.Route) place {
	_, paths := matched(route)
	if len(route.MatcherSets) == 0 {
		at.guarded = true
	} else {
		at.guards = append(slices.Clone(at.guards), paths...)
	}
	return at
}

func (c *siteCheck) authorize(h Authorizer, at place) {
	issuer := h.Issuer()
	c.authorizes = true
	c.proxies.guards[at.String()] = append(c.proxies.guards[at.String()], h.Placement().FHIRBase)
	if at.isOf(issuer) {
		c.atIssuer = true
		if strings.HasPrefix(issuer, "https://") && !at.mayBeHTTPS() {
			c.warn("%s: the issuer is %s, but this site serves plain HTTP and trusts no proxy to say that people use https, so nobody can sign in: "+
				"name the proxy in the global options (servers { trusted_proxies static <address> }), or let the site be %s", siteOf(h, at), issuer, issuer)
		}
	} else {
		c.elsewhere = append(c.elsewhere, siteOf(h, at)+" at "+strings.Join(at.server.Listen, " "))
	}
	if at.guarded {
		c.warn("%s: fhir_bearer stands before fhir_authorize, and asks for a token at the addresses where tokens are to be had: put fhir_authorize before it, or give fhir_bearer a matcher such as %s/*", siteOf(h, at), fhirbase.DefaultBase)
	}
}

func (c *siteCheck) guard(h Guard, at place, before caddyhttp.RouteList) {
	named, fhirBase := namedOf(h, at), h.Placement().FHIRBase
	c.base(named, fhirBase, at)
	c.whole(named, fhirBase, at)
	c.reached(named, fhirBase+"/Patient", before)
	c.proxies.guards[at.String()] = append(c.proxies.guards[at.String()], fhirBase)
	if c.bases[h] = at.url(fhirBase); c.bases[h] == "" {
		if err := h.WithoutURL(); err != nil {
			c.errs = append(c.errs, err)
		}
	}
	if at.open != nil {
		c.warn("%s: fhir_expand stands before fhir_bearer, and answers without a token: put fhir_bearer before it", siteOf(at.open, at))
	}
}

func (c *siteCheck) answerer(h Handler, at place, before caddyhttp.RouteList) {
	named, fhirBase := namedOf(h, at), h.Placement().FHIRBase
	c.base(named, fhirBase, at)
	c.reached(named, fhirBase+"/ValueSet/$expand", before)
}

// base checks whether requests below a handler's FHIR base can reach the handler.
func (c *siteCheck) base(h named, base string, at place) {
	if at.stripped != "" && fhirbase.Below(base, at.stripped) {
		c.warn("%s: %s stands behind handle_path or uri, which take %s off the path, and so never sees the FHIR base %s: use handle in place of handle_path, or put uri after %s",
			h.site, h.directive, at.stripped, base, h.directive)
	}
	for _, pattern := range at.paths {
		if prefix := strings.TrimSuffix(pattern, "*"); !strings.Contains(prefix, "*") && prefix != "/" && !fhirbase.Below(strings.TrimSuffix(prefix, "/"), base) {
			c.warn("%s: %s stands at %s, but the FHIR base is %s: if the API is elsewhere, say so with fhir_base, in the global option fhir or in %s; else let the matcher be %s %s/*",
				h.site, h.directive, pattern, base, h.directive, base, base)
		}
	}
}

// whole checks whether the matcher matches the base itself, to which batches and transactions are posted, and all
// paths below it, unless the matcher is for a part of the API.
func (c *siteCheck) whole(h named, base string, at place) {
	if len(at.paths) == 0 || slices.ContainsFunc(at.paths, func(pattern string) bool { return isPart(pattern, base) }) {
		return
	}
	if !at.takes(base) || !at.takes(base+"/Patient") {
		c.warn("%s: the matcher of %s leaves out %s itself, where batches and transactions are posted, or what is below it: let it be path %s %s/*",
			h.site, h.directive, base, base, base)
	}
}

// isPart reports whether a path pattern is for a part of the API, such as a type or an operation.
func isPart(pattern, base string) bool {
	if len(pattern) <= len(base) || !fhirbase.Below(pattern, base) {
		return false
	}
	part, _, _ := strings.Cut(strings.TrimSuffix(pattern[len(base)+1:], "*"), "/")
	return strings.HasPrefix(part, "$") || strings.HasPrefix(part, "_") || strings.HasPrefix(part, ".") || part == "metadata" ||
		slices.ContainsFunc(interaction.Types(), func(t string) bool { return strings.EqualFold(t, part) })
}

// reached checks whether an earlier handler of the block handles the handler's requests.
func (c *siteCheck) reached(h named, path string, before caddyhttp.RouteList) {
	path = strings.ToLower(path)
	if slices.ContainsFunc(before, func(route caddyhttp.Route) bool { return answers(&route, path) }) {
		c.warn("%s: %s is never asked, because what stands before it in its block answers all requests: put %s before that, or into it if it is a handle or route", h.site, h.directive, h.directive)
	}
}

// siteOf returns the name of a site and the handler's position in it.
func siteOf(h Handler, at place) string {
	if source := h.Placement().Source; source != "" {
		return source + " (" + at.String() + ")"
	}
	return at.String()
}

// named contains the names of a handler and its site in warnings.
type named struct{ directive, site string }

func namedOf(h Handler, at place) named { return named{h.Placement().Directive, siteOf(h, at)} }

// place describes the requests that reach a block of the configuration.
type place struct {
	server   *caddyhttp.Server
	hosts    []string // empty: all
	paths    []string // patterns; empty: all or unknown
	stripped string   // prefix removed from the path
	open     Handler  // earlier handler that is not guarded
	guarded  bool     // whether an earlier fhir_bearer guards all paths
	guards   []string // path patterns guarded by an earlier fhir_bearer
	answered []string // path patterns handled by an earlier route
}

// String returns the name of the site.
func (at place) String() string {
	if len(at.hosts) > 0 {
		return strings.Join(at.hosts, ", ")
	}
	return strings.Join(at.server.Listen, ", ")
}

// within returns the place after the matchers of a route.
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

// past returns the place after a route, without the requests that the route handles.
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

// takes reports whether requests for a path can reach the place according to the matchers.
func (at place) takes(path string) bool { return len(at.paths) == 0 || anyTakes(at.paths, path) }

// anyTakes reports whether a pattern of Caddy's path matcher matches a path. Only a trailing star is supported.
func anyTakes(patterns []string, path string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		prefix, open := strings.CutSuffix(pattern, "*")
		return strings.EqualFold(pattern, path) || open && len(path) >= len(prefix) && strings.EqualFold(path[:len(prefix)], prefix)
	})
}

// matched returns the hosts and paths of a route's matchers.
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

// rewritten returns the place after a rewrite, which changes the paths.
func (at place) rewritten(by *rewrite.Rewrite) place {
	at.paths = nil
	at.stripped += strings.TrimSuffix(by.StripPathPrefix, "/")
	return at
}

// isGuarded reports whether an earlier fhir_bearer guards all paths of the place.
func (at place) isGuarded() bool {
	return at.guarded || len(at.paths) > 0 && !slices.ContainsFunc(at.paths, func(pattern string) bool {
		return !slices.ContainsFunc(at.guards, func(guard string) bool {
			prefix, open := strings.CutSuffix(guard, "*")
			return pattern == guard || open && strings.HasPrefix(pattern, prefix)
		})
	})
}

// isOf reports whether requests to the issuer's address reach this place. A site without TLS is behind a proxy with
// its own port.
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

// mayBeHTTPS reports whether the server has TLS or trusts a proxy that reports TLS. Caddy exports only whether
// proxies on Unix sockets are trusted.
func (at place) mayBeHTTPS() bool {
	trusted := reflect.ValueOf(at.server).Elem().FieldByName("trustedProxies")
	return len(at.server.TLSConnPolicies) > 0 || at.server.TrustedProxiesUnix || !trusted.IsValid() || !trusted.IsNil()
}

// url returns the URL of a path at the address of the site, or "" if the site does not determine it: it needs one
// name, one port, and TLS except on loopback.
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
		return "" // a proxy in front terminates TLS under its own name
	}
	if address.StartPort != usual {
		host = net.JoinHostPort(host, strconv.Itoa(int(address.StartPort)))
	} else if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return scheme + "://" + host + at.stripped + path
}

// hostFits compares hosts as Caddy's host matcher does. A placeholder matches any host.
func hostFits(host, pattern string) bool {
	labels, patterns := strings.Split(host, "."), strings.Split(strings.Trim(pattern, "[]"), ".")
	return strings.Contains(pattern, "{") || len(labels) == len(patterns) && !slices.ContainsFunc(patterns, func(p string) bool {
		label := labels[0]
		labels = labels[1:]
		return p != "*" && !strings.EqualFold(p, label)
	})
}

// answers reports whether a route handles all requests for a path.
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

// proxies finds routes to a FHIR server that bypass fhir_bearer.
type proxies struct {
	guarded map[string]bool     // servers behind fhir_bearer
	open    []openProxy         // servers without fhir_bearer in front
	guards  map[string][]string // FHIR bases by site with fhir_bearer or fhir_authorize
}

// openProxy is a server that a site exposes without fhir_bearer.
type openProxy struct {
	address string
	at      place
}

func (p *proxies) add(h *reverseproxy.Handler, at place) {
	for _, upstream := range h.Upstreams {
		if at.isGuarded() {
			p.guarded[upstream.Dial] = true
			continue
		}
		p.open = append(p.open, openProxy{upstream.Dial, at})
		if len(at.guards) > 0 {
			p.guarded[upstream.Dial] = true // for the paths guarded by that fhir_bearer
		}
	}
}

// warnings returns warnings about servers that are guarded at one place and exposed at another, and about proxies
// that serve requests below a site's FHIR base unguarded.
func (p *proxies) warnings() (warnings []string) {
	sites := map[string][]string{}
	for _, o := range p.open {
		site := o.at.String()
		if p.guarded[o.address] {
			sites[o.address] = append(sites[o.address], site)
			continue
		}
		for _, base := range p.guards[site] {
			if o.answersBelow(base) {
				warnings = append(warnings, fmt.Sprintf("%s: reverse_proxy to %s answers requests below the FHIR base %s without fhir_bearer before it: put fhir_bearer before it, or give it a matcher for other paths", site, o.address, base))
			}
		}
	}
	for address, open := range sites {
		slices.Sort(open)
		warnings = append(warnings, fmt.Sprintf("%s: reverse_proxy leads to %s without fhir_bearer before it, and behind fhir_bearer elsewhere: let nothing lead there but what fhir_bearer guards", strings.Join(slices.Compact(open), ", "), address))
	}
	return warnings
}

// answersBelow reports whether unguarded requests for the FHIR base or below it reach the proxy. Patterns narrower
// than a type are not checked.
func (o *openProxy) answersBelow(base string) bool {
	return slices.ContainsFunc([]string{base, base + "/Patient", base + "/Patient/1"}, func(path string) bool {
		return o.at.takes(path) && !anyTakes(o.at.guards, path) && !anyTakes(o.at.answered, path)
	})
}
