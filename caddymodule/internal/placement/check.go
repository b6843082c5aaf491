package placement

import (
	"fmt"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/rewrite"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fhirbase"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// siteCheck looks for handlers of ours at places where they have no effect, and for ways around them, which is valid, but
// usually a mistake.
type siteCheck struct {
	app fhirbase.Addressed // nil without the fhir app

	warnings   []string
	errs       []error        // what cannot work
	bases      map[any]string // the URL of the API, where the site tells it
	elsewhere  []string       // sites with fhir_authorize that are not the issuer's
	authorizes bool           // some site has fhir_authorize
	atIssuer   bool           // the issuer's has
	proxies    proxies
}

// checkSites checks the sites of a configuration, with the fhir app or nil.
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

// checkIssuer checks that the authorization server is at the issuer's address.
func (c *siteCheck) checkIssuer() {
	if c.app == nil || c.atIssuer {
		return
	}
	issuer, _ := c.app.Address()
	switch {
	case !c.authorizes:
		c.warn("there is the global option fhir, but no site has fhir_authorize: apps find nobody at %s to get a token from", issuer)
	default:
		c.warn("issuer %s is not the address of a site with fhir_authorize (that is %s): apps are sent to the issuer. Let the two be the same, unless something in front leads from one to the other",
			issuer, strings.Join(c.elsewhere, ", "))
	}
}

// block checks the routes of a block in their order.
func (c *siteCheck) block(routes caddyhttp.RouteList, at place) {
	for i, route := range routes {
		within := at.within(&route)
		for j, handler := range route.Handlers {
			before := append(slices.Clone(routes[:i]), caddyhttp.Route{Handlers: route.Handlers[:j]}) // Caddy joins routes that have the same matchers
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

// behind is the place after a route with fhir_bearer.
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
	c.proxies.guards[at.String()] = append(c.proxies.guards[at.String()], h.Placed().FHIRBase)
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
	named, fhirBase := namedOf(h, at), h.Placed().FHIRBase
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
	named, fhirBase := namedOf(h, at), h.Placed().FHIRBase
	c.base(named, fhirBase, at)
	c.reached(named, fhirBase+"/ValueSet/$expand", before)
}

// base checks whether a handler's FHIR base is reachable where the handler stands.
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

// whole checks whether the matcher takes the base itself, where batches and transactions are posted, and what is below it,
// unless it is for a part of the API.
func (c *siteCheck) whole(h named, base string, at place) {
	if len(at.paths) == 0 || slices.ContainsFunc(at.paths, func(pattern string) bool { return isPart(pattern, base) }) {
		return
	}
	if !at.takes(base) || !at.takes(base+"/Patient") {
		c.warn("%s: the matcher of %s leaves out %s itself, where batches and transactions are posted, or what is below it: let it be path %s %s/*",
			h.site, h.directive, base, base, base)
	}
}

// isPart reports whether a path pattern is for a part of the API: a type, an operation, or the like.
func isPart(pattern, base string) bool {
	if len(pattern) <= len(base) || !fhirbase.Below(pattern, base) {
		return false
	}
	part, _, _ := strings.Cut(strings.TrimSuffix(pattern[len(base)+1:], "*"), "/")
	return strings.HasPrefix(part, "$") || strings.HasPrefix(part, "_") || strings.HasPrefix(part, ".") || part == "metadata" ||
		slices.ContainsFunc(interaction.Types(), func(t string) bool { return strings.EqualFold(t, part) })
}

// reached checks whether an earlier handler of the block answers the handler's requests.
func (c *siteCheck) reached(h named, path string, before caddyhttp.RouteList) {
	path = strings.ToLower(path)
	if slices.ContainsFunc(before, func(route caddyhttp.Route) bool { return answers(&route, path) }) {
		c.warn("%s: %s is never asked, because what stands before it in its block answers all requests: put %s before that, or into it if it is a handle or route", h.site, h.directive, h.directive)
	}
}

// siteOf names a site and the handler's place in it.
func siteOf(h Handler, at place) string {
	if source := h.Placed().Source; source != "" {
		return source + " (" + at.String() + ")"
	}
	return at.String()
}

// named is a handler as warnings name it.
type named struct{ directive, site string }

func namedOf(h Handler, at place) named { return named{h.Placed().Directive, siteOf(h, at)} }
