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

// siteCheck finds handlers of caddy-fhir that have no effect at their position, and routes that bypass them. Both are valid in
// a configuration but usually mistakes.
type siteCheck struct {
	app fhirbase.Addresser // nil if the fhir app is not configured

	warnings      []string
	errs          []error        // configurations that cannot work
	baseURLs      map[any]string // URL of the API by handler, if the site determines it
	otherSites    []string       // sites with fhir_authorize that are not the issuer's
	hasAuthorizer bool           // whether any site has fhir_authorize
	servesIssuer  bool           // whether the issuer's site has fhir_authorize
	proxies       proxyCheck
}

// checkSites checks the sites of a configuration. fhir is the fhir app or nil.
func checkSites(app *caddyhttp.App, fhir fhirbase.Addresser) *siteCheck {
	c := &siteCheck{app: fhir, baseURLs: map[any]string{}, proxies: proxyCheck{guardedServers: map[string]bool{}, basesBySite: map[string][]string{}}}
	for _, server := range app.Servers {
		c.checkBlock(server.Routes, routePosition{server: server})
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

// checkIssuer checks that the authorization server is reachable at the issuer's address.
func (c *siteCheck) checkIssuer() {
	if c.app == nil || c.servesIssuer {
		return
	}
	issuer, _ := c.app.Address()
	switch {
	case !c.hasAuthorizer:
		c.warn("no site has fhir_authorize, although the global option fhir is set, so %s has no token endpoint; add fhir_authorize to that site", issuer)
	default:
		c.warn("issuer %s is not the address of a site with fhir_authorize (found at %s); use the same address for both, unless a proxy in front forwards requests from one to the other",
			issuer, strings.Join(c.otherSites, ", "))
	}
}

// checkBlock checks the routes of a block in order.
func (c *siteCheck) checkBlock(routes caddyhttp.RouteList, at routePosition) {
	for i, route := range routes {
		inner := at.afterMatchers(&route)
		for j, handler := range route.Handlers {
			earlier := append(slices.Clone(routes[:i]), caddyhttp.Route{Handlers: route.Handlers[:j]}) // Caddy has merged routes with the same matchers
			switch h := handler.(type) {
			case *caddyhttp.Subroute:
				c.checkBlock(h.Routes, inner)
			case Authorizer:
				c.checkAuthorizer(h, inner)
				c.checkReachable(newHandlerName(h, inner), "/oauth2/authorize", earlier)
			case Guard:
				c.checkGuard(h, inner, earlier)
				inner.allGuarded = true
				at = at.afterGuard(&route)
			case Handler:
				c.checkHandler(h, inner, earlier)
				if len(route.MatcherSets) == 0 && !inner.isGuarded() {
					at.unguardedHandler, inner.unguardedHandler = h, h
				}
			case *reverseproxy.Handler:
				c.proxies.add(h, inner)
			case *rewrite.Rewrite:
				inner = inner.afterRewrite(h)
				if len(route.MatcherSets) == 0 {
					at = at.afterRewrite(h)
				}
			}
		}
		at = at.afterRoute(&route)
	}
}

// afterGuard returns the position after a route with fhir_bearer.
func (at routePosition) afterGuard(route *caddyhttp.Route) routePosition {
	_, paths := routeMatchers(route)
	if len(route.MatcherSets) == 0 {
		at.allGuarded = true
	} else {
		at.guardedPaths = append(slices.Clone(at.guardedPaths), paths...)
	}
	return at
}

func (c *siteCheck) checkAuthorizer(h Authorizer, at routePosition) {
	issuer := h.Issuer()
	c.hasAuthorizer = true
	c.proxies.basesBySite[at.String()] = append(c.proxies.basesBySite[at.String()], h.Placement().FHIRBase)
	if at.servesIssuer(issuer) {
		c.servesIssuer = true
		if strings.HasPrefix(issuer, "https://") && !at.mayBeHTTPS() {
			c.warn("%s: nobody can sign in: the issuer is %s, but this site serves plain HTTP and trusts no proxy that terminates TLS; "+
				"set the proxy in the global options (servers { trusted_proxies static <address> }), or change the site address to %s", siteName(h, at), issuer, issuer)
		}
	} else {
		c.otherSites = append(c.otherSites, siteName(h, at)+" at "+strings.Join(at.server.Listen, " "))
	}
	if at.allGuarded {
		c.warn("%s: fhir_bearer precedes fhir_authorize and requires a token at the token endpoint; put fhir_authorize first, or give fhir_bearer a matcher such as %s/*", siteName(h, at), fhirbase.DefaultBase)
	}
}

func (c *siteCheck) checkGuard(h Guard, at routePosition, earlier caddyhttp.RouteList) {
	name, fhirBase := newHandlerName(h, at), h.Placement().FHIRBase
	c.checkBase(name, fhirBase, at)
	c.checkMatcher(name, fhirBase, at)
	c.checkReachable(name, fhirBase+"/Patient", earlier)
	c.proxies.basesBySite[at.String()] = append(c.proxies.basesBySite[at.String()], fhirBase)
	if c.baseURLs[h] = at.url(fhirBase); c.baseURLs[h] == "" {
		if err := h.CheckWithoutURL(); err != nil {
			c.errs = append(c.errs, err)
		}
	}
	if at.unguardedHandler != nil {
		c.warn("%s: fhir_expand precedes fhir_bearer and responds without a token; put fhir_bearer first", siteName(at.unguardedHandler, at))
	}
}

func (c *siteCheck) checkHandler(h Handler, at routePosition, earlier caddyhttp.RouteList) {
	name, fhirBase := newHandlerName(h, at), h.Placement().FHIRBase
	c.checkBase(name, fhirBase, at)
	c.checkReachable(name, fhirBase+"/ValueSet/$expand", earlier)
}

// checkBase checks whether requests below a handler's FHIR base can reach the handler.
func (c *siteCheck) checkBase(h handlerName, base string, at routePosition) {
	if at.strippedPrefix != "" && fhirbase.IsBelow(base, at.strippedPrefix) {
		c.warn("%s: %s never matches because handle_path or uri strips %s, which is part of the FHIR base %s; use handle instead of handle_path, or put uri after %s",
			h.site, h.directive, at.strippedPrefix, base, h.directive)
	}
	for _, pattern := range at.paths {
		if prefix := strings.TrimSuffix(pattern, "*"); !strings.Contains(prefix, "*") && prefix != "/" && !fhirbase.IsBelow(strings.TrimSuffix(prefix, "/"), base) {
			c.warn("%s: %s has the matcher %s, but the FHIR base is %s; set fhir_base in the global option fhir or in %s if the API has another path, otherwise change the matcher to path %s %s/*",
				h.site, h.directive, pattern, base, h.directive, base, base)
		}
	}
}

// checkMatcher checks whether the matcher matches the base itself, to which batches and transactions are posted, and all paths
// below it. A matcher for only a part of the API is not checked.
func (c *siteCheck) checkMatcher(h handlerName, base string, at routePosition) {
	if len(at.paths) == 0 || slices.ContainsFunc(at.paths, func(pattern string) bool { return isPartOfAPI(pattern, base) }) {
		return
	}
	if !at.matchesPath(base) || !at.matchesPath(base+"/Patient") {
		c.warn("%s: the matcher of %s does not cover the FHIR base %s, which receives batches and transactions, or all paths below it; change it to path %s %s/*",
			h.site, h.directive, base, base, base)
	}
}

// isPartOfAPI reports whether a path pattern matches only a part of the API, such as a type or an operation.
func isPartOfAPI(pattern, base string) bool {
	if len(pattern) <= len(base) || !fhirbase.IsBelow(pattern, base) {
		return false
	}
	part, _, _ := strings.Cut(strings.TrimSuffix(pattern[len(base)+1:], "*"), "/")
	return strings.HasPrefix(part, "$") || strings.HasPrefix(part, "_") || strings.HasPrefix(part, ".") || part == "metadata" ||
		slices.ContainsFunc(interaction.Types(), func(t string) bool { return strings.EqualFold(t, part) })
}

// checkReachable checks whether an earlier handler in the block handles the handler's requests.
func (c *siteCheck) checkReachable(h handlerName, path string, earlier caddyhttp.RouteList) {
	path = strings.ToLower(path)
	if slices.ContainsFunc(earlier, func(route caddyhttp.Route) bool { return handlesPath(&route, path) }) {
		c.warn("%s: %s is never reached because an earlier handler in its block handles all requests; put %s before that handler, or inside it if it is a handle or route", h.site, h.directive, h.directive)
	}
}

// siteName returns the handler's position in the Caddyfile, if it is known, and the name of its site.
func siteName(h Handler, at routePosition) string {
	if source := h.Placement().Source; source != "" {
		return source + " (" + at.String() + ")"
	}
	return at.String()
}

// handlerName contains the names of a handler and its site in warnings.
type handlerName struct{ directive, site string }

func newHandlerName(h Handler, at routePosition) handlerName {
	return handlerName{h.Placement().Directive, siteName(h, at)}
}

// routePosition describes which requests reach a block of the configuration.
type routePosition struct {
	server           *caddyhttp.Server
	hosts            []string // if empty, all hosts
	paths            []string // path patterns; if empty, all paths or unknown
	strippedPrefix   string   // prefix removed from the path
	unguardedHandler Handler  // earlier handler that is not guarded
	allGuarded       bool     // whether an earlier fhir_bearer guards all paths
	guardedPaths     []string // path patterns guarded by an earlier fhir_bearer
	handledPaths     []string // path patterns handled by an earlier route
}

// String returns the name of the site.
func (at routePosition) String() string {
	if len(at.hosts) > 0 {
		return strings.Join(at.hosts, ", ")
	}
	return strings.Join(at.server.Listen, ", ")
}

// afterMatchers returns the position after the matchers of a route.
func (at routePosition) afterMatchers(route *caddyhttp.Route) routePosition {
	hosts, paths := routeMatchers(route)
	if len(hosts) > 0 {
		at.hosts = hosts
	}
	if len(paths) > 0 {
		at.paths = paths
	}
	return at
}

// afterRoute returns the position after a route, which requests handled by the route do not reach.
func (at routePosition) afterRoute(route *caddyhttp.Route) routePosition {
	if _, paths := routeMatchers(route); len(paths) == 0 {
		if handlesPath(route, "/") {
			at.handledPaths = []string{"*"}
		}
	} else if handlesPath(route, strings.TrimSuffix(paths[0], "*")) {
		at.handledPaths = append(slices.Clone(at.handledPaths), paths...)
	}
	return at
}

// matchesPath reports whether the matchers let requests for a path reach the position.
func (at routePosition) matchesPath(path string) bool {
	return len(at.paths) == 0 || matchesAnyPath(at.paths, path)
}

// matchesAnyPath reports whether any pattern matches a path as in Caddy's path matcher. Only trailing stars are supported.
func matchesAnyPath(patterns []string, path string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		prefix, isPrefix := strings.CutSuffix(pattern, "*")
		return strings.EqualFold(pattern, path) || isPrefix && len(path) >= len(prefix) && strings.EqualFold(path[:len(prefix)], prefix)
	})
}

// routeMatchers returns the hosts and paths in a route's matchers.
func routeMatchers(route *caddyhttp.Route) (hosts, paths []string) {
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

// afterRewrite returns the position after a rewrite, which changes the paths.
func (at routePosition) afterRewrite(by *rewrite.Rewrite) routePosition {
	at.paths = nil
	at.strippedPrefix += strings.TrimSuffix(by.StripPathPrefix, "/")
	return at
}

// isGuarded reports whether an earlier fhir_bearer guards all paths at the position.
func (at routePosition) isGuarded() bool {
	return at.allGuarded || len(at.paths) > 0 && !slices.ContainsFunc(at.paths, func(pattern string) bool {
		return !slices.ContainsFunc(at.guardedPaths, func(guard string) bool {
			prefix, isPrefix := strings.CutSuffix(guard, "*")
			return pattern == guard || isPrefix && strings.HasPrefix(pattern, prefix)
		})
	})
}

// servesIssuer reports whether requests to the issuer's address reach the position. A site without TLS may be behind a proxy,
// which has its own port.
func (at routePosition) servesIssuer(issuer string) bool {
	u, err := url.Parse(issuer)
	if err != nil {
		return false
	}
	port := cmp.Or(u.Port(), "443")
	hosts := caddyhttp.MatchHost(at.hosts)
	hostMatch := len(hosts) == 0 || slices.ContainsFunc(hosts, func(pattern string) bool { return hostMatches(u.Hostname(), pattern) })
	return hostMatch && (len(at.server.TLSConnPolicies) == 0 || slices.ContainsFunc(at.server.Listen, func(address string) bool {
		return strings.HasSuffix(address, ":"+port)
	}))
}

// mayBeHTTPS reports whether the server uses TLS or trusts a proxy that reports TLS. Caddy exports only whether proxies on Unix
// sockets are trusted.
func (at routePosition) mayBeHTTPS() bool {
	trusted := reflect.ValueOf(at.server).Elem().FieldByName("trustedProxies")
	return len(at.server.TLSConnPolicies) > 0 || at.server.TrustedProxiesUnix || !trusted.IsValid() || !trusted.IsNil()
}

// url returns the URL of a path at the site's address, or "" if the site does not determine it. The site must have a single
// name, a single port and, except on loopback, TLS.
func (at routePosition) url(path string) string {
	if len(at.hosts) != 1 || strings.ContainsAny(at.hosts[0], "*{") || len(at.server.Listen) != 1 {
		return ""
	}
	address, err := caddy.ParseNetworkAddress(at.server.Listen[0])
	if err != nil || address.IsUnixNetwork() || address.PortRangeSize() != 1 || address.StartPort == 0 {
		return ""
	}
	scheme, defaultPort := "https", uint(443)
	if len(at.server.TLSConnPolicies) == 0 {
		scheme, defaultPort = "http", 80
	}
	host := strings.Trim(at.hosts[0], "[]")
	if scheme == "http" && !httporigin.IsLoopback(host) {
		return "" // a proxy in front terminates TLS under a different name
	}
	if address.StartPort != defaultPort {
		host = net.JoinHostPort(host, strconv.Itoa(int(address.StartPort)))
	} else if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return scheme + "://" + host + at.strippedPrefix + path
}

// hostMatches compares hosts like Caddy's host matcher. A placeholder matches any host.
func hostMatches(host, pattern string) bool {
	labels, patterns := strings.Split(host, "."), strings.Split(strings.Trim(pattern, "[]"), ".")
	return strings.Contains(pattern, "{") || len(labels) == len(patterns) && !slices.ContainsFunc(patterns, func(p string) bool {
		label := labels[0]
		labels = labels[1:]
		return p != "*" && !strings.EqualFold(p, label)
	})
}

// handlesPath reports whether a route handles all requests for a path.
func handlesPath(route *caddyhttp.Route, path string) bool {
	_, patterns := routeMatchers(route)
	isMatch := len(route.MatcherSets) == 0 || matchesAnyPath(patterns, path)
	return isMatch && slices.ContainsFunc(route.Handlers, func(handler caddyhttp.MiddlewareHandler) bool {
		if nested, ok := handler.(*caddyhttp.Subroute); ok {
			return slices.ContainsFunc(nested.Routes, func(r caddyhttp.Route) bool { return handlesPath(&r, path) })
		}
		module, ok := handler.(caddy.Module)
		return ok && slices.Contains([]caddy.ModuleID{"http.handlers.reverse_proxy", "http.handlers.static_response", "http.handlers.file_server", "http.handlers.fhir_sample"}, module.CaddyModule().ID)
	})
}

// proxyCheck finds routes to a FHIR server that bypass fhir_bearer.
type proxyCheck struct {
	guardedServers   map[string]bool     // servers that fhir_bearer guards
	unguardedProxies []unguardedProxy    // servers that sites expose without fhir_bearer
	basesBySite      map[string][]string // FHIR bases by site, for sites with fhir_bearer or fhir_authorize
}

// unguardedProxy is a server that a site exposes without fhir_bearer.
type unguardedProxy struct {
	address  string
	position routePosition
}

func (p *proxyCheck) add(h *reverseproxy.Handler, at routePosition) {
	for _, upstream := range h.Upstreams {
		if at.isGuarded() {
			p.guardedServers[upstream.Dial] = true
			continue
		}
		p.unguardedProxies = append(p.unguardedProxies, unguardedProxy{upstream.Dial, at})
		if len(at.guardedPaths) > 0 {
			p.guardedServers[upstream.Dial] = true // fhir_bearer guards this server on at.guardedPaths only
		}
	}
}

// warnings returns warnings about servers that are guarded at one position but exposed at another, and about proxies that
// expose paths below a site's FHIR base.
func (p *proxyCheck) warnings() (warnings []string) {
	sites := map[string][]string{}
	for _, o := range p.unguardedProxies {
		site := o.position.String()
		if p.guardedServers[o.address] {
			sites[o.address] = append(sites[o.address], site)
			continue
		}
		for _, base := range p.basesBySite[site] {
			if o.servesBelow(base) {
				warnings = append(warnings, fmt.Sprintf("%s: reverse_proxy to %s serves requests below the FHIR base %s without fhir_bearer; put fhir_bearer before it, or give it a matcher for other paths", site, o.address, base))
			}
		}
	}
	for address, isUnguarded := range sites {
		slices.Sort(isUnguarded)
		warnings = append(warnings, fmt.Sprintf("%s: reverse_proxy forwards to %s without fhir_bearer, although another route protects that server with fhir_bearer; put fhir_bearer before every reverse_proxy to that server", strings.Join(slices.Compact(isUnguarded), ", "), address))
	}
	return warnings
}

// servesBelow reports whether unguarded requests for the FHIR base, or for paths below it, reach the proxy. Patterns that match
// less than a type are ignored.
func (o *unguardedProxy) servesBelow(base string) bool {
	return slices.ContainsFunc([]string{base, base + "/Patient", base + "/Patient/1"}, func(path string) bool {
		return o.position.matchesPath(path) && !matchesAnyPath(o.position.guardedPaths, path) && !matchesAnyPath(o.position.handledPaths, path)
	})
}
