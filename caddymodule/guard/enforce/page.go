package enforce

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

const (
	// pagePath is where sealed links lead, below the FHIR base.
	pagePath = "_page/"
	// pageLifetime is how long a link to a page can be followed.
	pageLifetime = 24 * time.Hour
)

// page is what a sealed link carries: the search as the client asked it, and how far it has come.
type page struct {
	Method string   `json:"m"`
	Path   string   `json:"u"`
	Query  string   `json:"q,omitempty"`
	Body   string   `json:"f,omitempty"`
	At     position `json:"a"`
}

// pageLink is the link to the next page of a search.
func (x *exchange) pageLink(ctx context.Context, c call, at position) (string, error) {
	text, err := json.Marshal(page{c.method, c.path, c.query, string(c.body), at})
	if err != nil {
		return "", err
	}
	sealed, err := x.Sealing.Seal(ctx, string(text), x.binding)
	if err != nil {
		return "", fmt.Errorf("sealing a page link: %w", err)
	}
	return x.url(pagePath+sealed, ""), nil
}

// opened is what a sealed link carries: the search as the client asked it, and how far it has come. A link that is
// another token's is not there.
func (x *exchange) opened(sealed string) (c call, i interaction.Interaction, at position, err error) {
	if x.r.Method != http.MethodGet && x.r.Method != http.MethodHead {
		return c, i, at, notFound()
	}
	text, err := x.Sealing.Unseal(x.r.Context(), sealed, x.binding, pageLifetime)
	if err != nil {
		return c, i, at, notFound()
	}
	var p page
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return c, i, at, fmt.Errorf("page link: %w", err)
	}
	c = call{method: p.Method, path: p.Path, query: p.Query, body: []byte(p.Body)}
	i, err = c.interaction()
	return c, i, p.At, err
}

// servePage answers a page link.
func (x *exchange) servePage(w http.ResponseWriter, sealed string) (interaction.Interaction, error) {
	c, i, at, err := x.opened(sealed)
	if err != nil {
		return i, err
	}
	if x.passes(i) && x.leavesPassing(c, i) {
		x.r.URL = &url.URL{Path: strings.TrimSuffix(x.Base+"/"+at.Path, "/"), RawQuery: at.Query}
		x.r.RequestURI = x.r.URL.RequestURI()
		return i, x.pass(w, c, i)
	}
	a, err := x.underPolicies(x.r.Context(), c, i, func() (*answer, error) {
		s, err := x.newSearch(x.r.Context(), c, i)
		if err != nil {
			return nil, err
		}
		return s.page(x.r.Context(), at)
	})
	return i, x.finish(w, a, err)
}

// url is the address of a path below the FHIR base, as clients know it.
func (x *exchange) url(path, query string) string {
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

// local is a link of the FHIR server as path and query below the FHIR base. The server's own base is what remains of
// the self link, or else of the link, without the path that was asked for.
func (x *exchange) local(next, self string, at position, s *search) (path, query string, err error) {
	asked := at.Path
	if at.Path == "" && at.Query == "" {
		asked = s.branches[at.Branch].path()
	}
	u, err := url.Parse(next)
	if err != nil {
		return "", "", withheld(err)
	}
	base, ok := baseOf(self, asked)
	if !ok {
		base, ok = baseOf(next, asked)
	}
	rest, below := strings.CutPrefix(u.Path, base)
	if !ok || !below || rest != "" && rest[0] != '/' {
		return "", "", withheld(fmt.Errorf("%w: %s", errForeignLink, next))
	}
	return strings.Trim(rest, "/"), u.RawQuery, nil
}

// baseOf is the path of a link without the path that was asked for.
func baseOf(link, asked string) (string, bool) {
	u, err := url.Parse(link)
	if err != nil || link == "" {
		return "", false
	}
	if asked == "" {
		return strings.TrimSuffix(u.Path, "/"), true
	}
	path := strings.TrimSuffix(strings.TrimSuffix(u.Path, "/_search"), "/")
	base, ok := strings.CutSuffix(path, "/"+asked)
	return base, ok
}

// resourceURL finds the resource in an address: its type, id and version.
var resourceURL = regexp.MustCompile(`(?:^|/)([A-Z][A-Za-z]+/[A-Za-z0-9.-]{1,64}(?:/_history/[A-Za-z0-9.-]{1,64})?)$`)

// localURL is the address of a resource as clients know it, whatever the FHIR server calls itself.
func (x *exchange) localURL(address string) (string, bool) {
	address, _, _ = strings.Cut(address, "?")
	if match := resourceURL.FindStringSubmatch(address); match != nil {
		return x.url(match[1], ""), true
	}
	return "", false
}

// localize has an answer's headers name resources as clients know them.
func (x *exchange) localize(a *answer) *answer {
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
func (x *exchange) localizeEntries(entries []entry) {
	for i := range entries {
		if local, ok := x.localURL(entries[i].fullURL); ok {
			entries[i].fullURL = local
		}
	}
}

// encode writes parameters as a query.
func encode(parameters []smart.Parameter) string {
	var b strings.Builder
	for i, p := range parameters {
		if i > 0 {
			b.WriteByte('&')
		}
		b.WriteString(url.QueryEscape(p.Name) + "=" + url.QueryEscape(p.Value))
	}
	return b.String()
}

// joined is two parts of a path.
func joined(path, more string) string {
	if path == "" {
		return more
	}
	return path + "/" + more
}
