// Package paging seals links to pages for a token, so that they say how far a search has come and nobody else can follow
// or change them.
//
//	page.go   links, and the position of a search that they carry
//	state.go  the encoding of a position, in the link itself or in a store
package paging

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/compartment"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/searchparam"
)

const (
	// PagePath is where sealed links lead, below the FHIR base.
	PagePath = "_page/"
	// pageLifetime is how long a link to a page can be followed.
	pageLifetime = 24 * time.Hour
)

// Position is how far the pages of a search have come: a place for each branch.
type Position struct {
	Places []Place // one for each branch
	// Shown is how many matches the pages before have had.
	Shown int
	// Total is what the first page told; 0 if nothing.
	Total int
}

// Place is how far a branch has come. No page of the FHIR server is read twice: it may order anew what _sort leaves open
// with each answer, and an answer fits no other than the one that its own link leads to.
type Place struct {
	// Left are the matches that were read and not shown, as Type/id in their order. They come before the page.
	Left []string
	// Path is that of the next page on the FHIR server. Empty, and Query too: its first one.
	Path string
	// Query is that of the next page on the FHIR server.
	Query string
	// Taken are the entries of an operation's page that earlier pages of ours had.
	Taken int
	// Done says that there are no more pages.
	Done bool
	// Cut says that the last page may not have been the last: some servers lose the link where duplicates fill the page.
	Cut bool
}

// IsFirst reports whether the branch is before its first page.
func (p Place) IsFirst() bool { return !p.Done && p.Path == "" && p.Query == "" }

// IsStart reports whether no page has been shown yet.
func (p Position) IsStart() bool {
	return p.IsEnd() || !slices.ContainsFunc(p.Places, func(at Place) bool { return !at.IsFirst() || at.Taken > 0 })
}

// IsEnd reports whether no branch has any more.
func (p Position) IsEnd() bool {
	return !slices.ContainsFunc(p.Places, func(at Place) bool { return !at.Done || len(at.Left) > 0 })
}

// Sealing seals texts so that nobody but us can make or read them.
type Sealing interface {
	// Seal returns the text sealed; it opens with the same binding only. Letters, digits, - _ and dots.
	Seal(ctx context.Context, text, binding string) (string, error)
	// Unseal opens what [Sealing.Seal] has sealed with the binding, maxAge ago at most.
	Unseal(ctx context.Context, sealed, binding string, maxAge time.Duration) (string, error)
}

// Pages seals links to pages for the token, and opens them.
type Pages struct {
	Sealing Sealing           // seals the links
	States  PageStates        // stores what is too long for a link; nil if links may have any length
	Binding string            // of the links to the token
	At      message.Addresses // names what it holds as clients know it
	AsSent  bool              // links carry all that the client sent, which policies judge again
}

// Page is what a sealed link carries: the request as the client made it, and how far it has come.
type Page struct {
	Method string   // GET or POST
	Path   string   // below the FHIR base
	Query  string   // as the client sent it
	Body   string   // the form of a POST
	At     Position // how far it has come
}

// AsSent is what a link carries of a request that is needed whole.
func AsSent(c message.Call, at Position) Page {
	return Page{Method: c.Method, Path: c.Path, Query: c.Query, Body: string(c.Body), At: at}
}

// Begun is what a link carries once all branches have begun: the FHIR server's own links say what is searched for, and
// of the client's parameters only those are kept that say what is done here. Rules judge each page by all of them.
func (x Pages) Begun(c message.Call, i interaction.Interaction, at Position) Page {
	if x.AsSent {
		return AsSent(c, at)
	}
	p := Page{Path: c.SearchPath(), At: at}
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
	case name == "_count", name == "_sort", name == "_type", name == "patient", IsForResults(p):
		return true
	default:
		by, ok := searchparam.Lookup(resourceType, name)
		return ok && compartment.IsMembership(resourceType, by)
	}
}

// IsForResults reports whether a parameter says how results are to be, and what comes along with them.
func IsForResults(p smart.Parameter) bool {
	name, _, _ := strings.Cut(p.Name, ":")
	return name == "_include" || name == "_revinclude" || name == "_summary" || name == "_elements"
}

// Seal is the link that carries a page.
func (x Pages) Seal(ctx context.Context, p Page) (string, error) {
	sealed, err := x.seal(ctx, p.encode())
	if refusal, ok := errors.AsType[*guard.Error](err); ok {
		return "", refusal
	}
	if err != nil {
		return "", fmt.Errorf("sealing a page link: %w", err)
	}
	return x.At.URL(PagePath+sealed, ""), nil
}

// Opened is what a sealed link carries: the request as the client made it, and how far it has come. A link that is
// another token's is not there.
func (x Pages) Opened(r *http.Request, sealed string) (c message.Call, i interaction.Interaction, at Position, err error) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return c, i, at, message.NotFound()
	}
	state, err := x.unseal(r.Context(), sealed)
	if err != nil {
		return c, i, at, err
	}
	p, err := decodePage(state)
	if err != nil {
		return c, i, at, fmt.Errorf("page link: %w", err)
	}
	c = message.Call{Method: cmp.Or(p.Method, http.MethodGet), Path: p.Path, Query: p.Query, Body: []byte(p.Body)}
	i, err = c.Interaction()
	return c, i, p.At, err
}

// ErrForeignLink says that a page would have to be asked of another server.
var ErrForeignLink = errors.New("link of the FHIR server that leads elsewhere")

// Call is the call for the page at the place, if the first page is asked for by another one.
func (p Place) Call(first message.Call) message.Call {
	if p.IsFirst() {
		return first
	}
	return message.Get(p.Path, p.Query)
}

// Next is the place behind the page that a call has asked for at the place: where the FHIR server's link to the next
// page leads, which is no page that has been.
func (p Place) Next(links message.Links, asked message.Call) (Place, error) {
	next := links.To("next")
	if next == "" {
		return Place{Done: true}, nil
	}
	to, ok := localTo(next, links.To("self"), asked.SearchPath())
	if !ok || to.IsFirst() || to.Path == p.Path && to.Query == p.Query {
		return Place{}, message.Withheld(ErrForeignLink)
	}
	return to, nil
}

// localTo is where a link of the FHIR server leads below its base, which is what its own link has before the path that
// was asked for, or else the link before the first segment that is a resource type.
func localTo(address, self, asked string) (Place, bool) {
	u, err := url.Parse(address)
	if err != nil {
		return Place{}, false
	}
	base, ok := BaseOf(self, asked)
	if !ok {
		base = beforeType(rooted(u))
	}
	rest, below := strings.CutPrefix(rooted(u), base)
	return Place{Path: strings.Trim(rest, "/"), Query: u.RawQuery}, below && (rest == "" || rest[0] == '/')
}

// BaseOf is the path of a link without the path that was asked for.
func BaseOf(link, asked string) (string, bool) {
	u, err := url.Parse(link)
	if err != nil || link == "" {
		return "", false
	}
	path := strings.TrimSuffix(strings.TrimSuffix(rooted(u), "/_search"), "/")
	if asked == "" {
		return beforeType(path), true
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

// SealLinks returns the links of a Bundle for clients, sealed for the token. The Bundle is the answer to a call, or a page
// of it, for which the server was asked at another path. A link that does not lead below the server's base is an error.
func (x Pages) SealLinks(ctx context.Context, c message.Call, asked string, links message.Links) (message.Links, error) {
	self := links.To("self")
	sealed := message.Links{{Relation: "self", URL: x.At.URL(c.Path, c.Query)}}
	begun := message.Call{Method: http.MethodGet, Path: c.SearchPath(), Query: c.Query} // a page of a search by POST is asked for by GET
	for _, l := range links {
		if l.Relation == "self" {
			continue
		}
		to, ok := localTo(l.URL, self, asked)
		if !ok || to.IsFirst() {
			return nil, fmt.Errorf("%w: relation %q", ErrForeignLink, l.Relation)
		}
		i, err := begun.Interaction()
		if err != nil {
			return nil, err
		}
		address, err := x.Seal(ctx, x.Begun(begun, i, Position{Places: []Place{to}}))
		if err != nil {
			return nil, err
		}
		sealed = append(sealed, message.Link{Relation: l.Relation, URL: address})
	}
	return sealed, nil
}

// paging are the parameters by which FHIR servers link pages, in small letters. Who has such a link may read the page
// on many servers, so only we follow them.
var paging = []string{
	"_getpages", "_getpagesoffset", "_pageid", "_bundletype", "_page", "_offset", "_cursor", "_skip", "_pagetoken",
	"_page_token", "_continuation", "_continuationtoken", "_searchid", "_queryid", "_stateid", "ct", "page", "search-id",
	"queryid", "searchid",
}

// RefusePaging refuses the FHIR server's own links.
func RefusePaging(parameters []smart.Parameter) error {
	for _, p := range parameters {
		name, _, _ := strings.Cut(p.Name, ":")
		if slices.Contains(paging, strings.ToLower(name)) {
			return message.Forbidden(message.ErrOracle, "Pages are reached by the links of a search, not by the parameter %s.", name)
		}
	}
	return nil
}

// MaxFetches is how many pages of the FHIR server one page of a history or an operation is made of at most.
const MaxFetches = 8
