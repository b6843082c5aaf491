package enforce

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/compartment"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/searchparam"
)

const (
	// pagePath is where sealed links lead, below the FHIR base.
	pagePath = "_page/"
	// pageLifetime is how long a link to a page can be followed.
	pageLifetime = 24 * time.Hour
)

// maxState bounds what a sealed link carries, because links go into the lines of requests, for which servers have
// bounds of a few kilobytes.
const maxState = 4 << 10

var errLongLink = tooCostly("The search is too long for links to its further pages: ask for less at once, or for all on one page by _count.")

// page is what a sealed link carries: the request as the client made it, and how far it has come.
type page struct {
	Method string   `json:"m,omitempty"`
	Path   string   `json:"u"`
	Query  string   `json:"q,omitempty"`
	Body   string   `json:"f,omitempty"`
	At     position `json:"a"`
}

// nextLink is the link to the next page.
func (s *search) nextLink(ctx context.Context, at position) (string, error) {
	if !slices.ContainsFunc(at.Places, place.isFirst) {
		return s.x.seal(ctx, s.x.begun(s.c, s.i, at))
	}
	return s.x.seal(ctx, asSent(s.c, at))
}

// asSent is what a link carries of a request that is needed whole.
func asSent(c call, at position) page {
	return page{Method: c.method, Path: c.path, Query: c.query, Body: string(c.body), At: at}
}

// begun is what a link carries once all branches have begun: the FHIR server's own links say what is searched for, and
// of the client's parameters only those are kept that say what is done here. Rules judge each page by all of them.
func (x *exchange) begun(c call, i interaction.Interaction, at position) page {
	if x.Policies.Rules != nil {
		return asSent(c, at)
	}
	p := page{Path: c.searchPath(), At: at}
	if i.Kind == interaction.CompartmentSearch {
		p.Path = i.Path()
	}
	p.Query = smart.EncodeParameters(slices.DeleteFunc(slices.Clone(i.Parameters), func(p smart.Parameter) bool { return !isForPages(i.Type, p) }))
	return p
}

// isForPages reports whether a parameter is of use once a search has begun: it says how results are to be, or of which
// patient they are, by which the search is planned.
func isForPages(resourceType string, p smart.Parameter) bool {
	switch name, _, _ := strings.Cut(p.Name, ":"); {
	case name == "_count", name == "_sort", name == "_type", name == "patient", isForResults(p):
		return true
	default:
		by, ok := searchparam.Lookup(resourceType, name)
		return ok && compartment.IsMembership(resourceType, by)
	}
}

// seal is the link that carries a page.
func (x *exchange) seal(ctx context.Context, p page) (string, error) {
	text, err := json.Marshal(p)
	if err != nil {
		return "", err
	}
	if len(text) > maxState {
		return "", errLongLink
	}
	sealed, err := x.Sealing.Seal(ctx, string(text), x.bearer.Binding)
	if err != nil {
		return "", fmt.Errorf("sealing a page link: %w", err)
	}
	return x.url(pagePath+sealed, ""), nil
}

// pageLink is the link to a page of an answer that passes as it is.
func (x *exchange) pageLink(ctx context.Context, c call, at place) (string, error) {
	i, err := c.interaction()
	if err != nil {
		return "", err
	}
	return x.seal(ctx, x.begun(c, i, position{Places: []place{at}}))
}

// opened is what a sealed link carries: the request as the client made it, and how far it has come. A link that is
// another token's is not there.
func (x *exchange) opened(sealed string) (c call, i interaction.Interaction, at position, err error) {
	if x.r.Method != http.MethodGet && x.r.Method != http.MethodHead {
		return c, i, at, notFound()
	}
	text, err := x.Sealing.Unseal(x.r.Context(), sealed, x.bearer.Binding, pageLifetime)
	if err != nil {
		return c, i, at, notFound()
	}
	var p page
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return c, i, at, fmt.Errorf("page link: %w", err)
	}
	c = call{method: cmp.Or(p.Method, http.MethodGet), path: p.Path, query: p.Query, body: []byte(p.Body)}
	i, err = c.interaction()
	return c, i, p.At, err
}

// servePage answers a page link.
func (x *exchange) servePage(w http.ResponseWriter, sealed string) (interaction.Interaction, error) {
	c, i, at, err := x.opened(sealed)
	if err != nil {
		return i, err
	}
	if len(at.Places) == 1 && !at.isStart() && x.passes(i) && x.leavesPassing(c, i) {
		x.r.URL = &url.URL{Path: strings.TrimSuffix(x.Base+"/"+at.Places[0].Path, "/"), RawQuery: at.Places[0].Query}
		x.r.RequestURI = x.r.URL.RequestURI()
		return i, x.pass(w, c, i)
	}
	a, err := x.underPolicies(x.r.Context(), c, i, func() (*answer, error) {
		return x.page(x.r.Context(), c, i, at, x.url(pagePath+sealed, ""))
	})
	return i, x.finish(w, a, err)
}

// page answers with the page at a position.
func (x *exchange) page(ctx context.Context, c call, i interaction.Interaction, at position, self string) (*answer, error) {
	switch i.Kind {
	case interaction.InstanceHistory, interaction.TypeHistory, interaction.SystemHistory:
		return x.histories().historyPage(ctx, c, i, at, self)
	case interaction.Operation:
		return x.operations().operationPage(ctx, c, i, at)
	}
	s, err := x.searches().newSearch(ctx, c, i)
	if err != nil {
		return nil, err
	}
	return s.page(ctx, at, self)
}

// url is the address of a path below the FHIR base, as clients know it.
func (x *backend) url(path, query string) string {
	base := x.BaseURL
	if base == "" {
		base = x.Base
	}
	u := strings.TrimSuffix(base+"/"+path, "/")
	if query != "" {
		u += "?" + query
	}
	return u
}

var errForeignLink = errors.New("link of the FHIR server that leads elsewhere")

// local is where a link of the FHIR server to a next page leads, which is no page that has been.
func (x *backend) local(next, self, asked string, from place) (place, error) {
	to, ok := localTo(next, self, asked)
	if !ok || to.isFirst() || to.Path == from.Path && to.Query == from.Query {
		return place{}, withheld(errForeignLink)
	}
	return to, nil
}

// localTo is where a link of the FHIR server leads below its base, which is what its own link has before the path that
// was asked for, or else the link before the first segment that is a resource type.
func localTo(address, self, asked string) (place, bool) {
	u, err := url.Parse(address)
	if err != nil {
		return place{}, false
	}
	base, ok := baseOf(self, asked)
	if !ok {
		base = beforeType(rooted(u))
	}
	rest, below := strings.CutPrefix(rooted(u), base)
	return place{Path: strings.Trim(rest, "/"), Query: u.RawQuery}, below && (rest == "" || rest[0] == '/')
}

// baseOf is the path of a link without the path that was asked for.
func baseOf(link, asked string) (string, bool) {
	u, err := url.Parse(link)
	if err != nil || link == "" {
		return "", false
	}
	path := strings.TrimSuffix(strings.TrimSuffix(rooted(u), "/_search"), "/")
	if asked == "" {
		return path, true
	}
	return strings.CutSuffix(path, "/"+asked)
}

// rooted is the path of a link, of which a relative one is taken to be below the server's root.
func rooted(u *url.URL) string { return "/" + strings.TrimPrefix(u.Path, "/") }

// beforeType is a path up to its first segment that is a resource type.
func beforeType(path string) string {
	at := 0
	for segment := range strings.SplitSeq(path, "/") {
		if interaction.IsType(segment) {
			return strings.TrimSuffix(path[:at], "/")
		}
		at += len(segment) + 1
	}
	return strings.TrimSuffix(path, "/")
}

// resourceURL finds the resource in an address: its type, id and version.
var resourceURL = regexp.MustCompile(`(?:^|/)([A-Z][A-Za-z]+/[A-Za-z0-9.-]{1,64}(?:/_history/[A-Za-z0-9.-]{1,64})?)$`)

// localURL is the address of a resource as clients know it, whatever the FHIR server calls itself.
func (x *backend) localURL(address string) (string, bool) {
	address, _, _ = strings.Cut(address, "?")
	if match := resourceURL.FindStringSubmatch(address); match != nil {
		return x.url(match[1], ""), true
	}
	return "", false
}

// localize has an answer's headers name resources as clients know them.
func (x *backend) localize(a *answer) *answer {
	for _, name := range []string{"Location", "Content-Location"} {
		if address := a.header.Get(name); address == "" {
			continue
		} else if local, ok := x.localURL(address); ok {
			a.header.Set(name, local)
		} else {
			a.header.Del(name)
		}
	}
	return a
}

// localizeEntries does so for a Bundle.
func (x *backend) localizeEntries(entries []entry) {
	for i := range entries {
		if local, ok := x.localURL(entries[i].fullURL); ok {
			entries[i].fullURL = local
		}
	}
}

// joined is two parts of a path.
func joined(path, more string) string {
	if path == "" {
		return more
	}
	return path + "/" + more
}
