// Package paging seals page links. A sealed link contains the position in a search; only the same token can follow it.
//
//	page.go   links, and the position in a search that they contain
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
	// PagePath is the path of page links below the FHIR base.
	PagePath = "_page/"
	// pageLifetime is how long a page link is valid.
	pageLifetime = 24 * time.Hour
)

// Position is the position of a page in a search.
type Position struct {
	Branches []BranchPosition // positions of the branches, in order
	// ReturnedCount is the number of matches on previous pages.
	ReturnedCount int
	// Total is the total of the first page, or 0 if it had none.
	Total int
}

// BranchPosition is the position in a branch. A page of the FHIR server is not requested again after one of its matches was
// returned: if _sort does not determine the order, it may differ between responses, and only the page's own link continues it.
type BranchPosition struct {
	// Pending are the matches that were read but not returned, as Type/id in order. They precede the next page.
	Pending []string
	// Path is the path of the next page on the FHIR server. If Path and Query are empty, it is the first page.
	Path string
	// Query is the query of the next page on the FHIR server.
	Query string
	// ReturnedCount is the number of entries on the current page of an operation that were on previous pages.
	ReturnedCount int
	// IsDone is true if there are no more pages.
	IsDone bool
	// MayBeIncomplete is true if the branch may lack matches: some FHIR servers omit the next link if duplicates fill a page.
	MayBeIncomplete bool
}

// IsFirst reports whether the first page of the branch has not been requested yet.
func (p BranchPosition) IsFirst() bool { return !p.IsDone && p.Path == "" && p.Query == "" }

// IsStart reports whether no page has been returned yet.
func (p Position) IsStart() bool {
	return p.IsEnd() || !slices.ContainsFunc(p.Branches, func(at BranchPosition) bool { return !at.IsFirst() || at.ReturnedCount > 0 })
}

// IsEnd reports whether all branches are exhausted.
func (p Position) IsEnd() bool {
	return !slices.ContainsFunc(p.Branches, func(at BranchPosition) bool { return !at.IsDone || len(at.Pending) > 0 })
}

// Sealing seals text so that only this server can create and open it.
type Sealing interface {
	// Seal returns the sealed text, which can be opened only with the same binding. It consists of letters, digits, hyphens,
	// underscores and dots.
	Seal(ctx context.Context, text, binding string) (string, error)
	// Unseal opens a text that [Sealing.Seal] sealed with the same binding at most maxAge ago.
	Unseal(ctx context.Context, sealed, binding string, maxAge time.Duration) (string, error)
}

// Pages seals and opens page links for a token.
type Pages struct {
	Sealing          Sealing           // seals the links
	States           PageStates        // stores states that are too long for a link; if nil, links have any length
	Binding          string            // binds links to the token
	Addresses        message.Addresses // public addresses of the FHIR API
	FullRequestLinks bool              // links contain the client's complete request, because policies judge it again
}

// Page is the content of a sealed link: the client's request and the position.
type Page struct {
	Method   string   // GET or POST
	Path     string   // below the FHIR base
	Query    string   // as sent by the client
	Body     string   // form parameters if Method is POST
	Position Position // position of the page
}

// FullRequestPage returns the page of a request with a link that must contain the complete request.
func FullRequestPage(c message.Call, at Position) Page {
	return Page{Method: c.Method, Path: c.Path, Query: c.Query, Body: string(c.Body), Position: at}
}

// ContinuedSearchPage returns the page of a search in which all branches have begun. The FHIR server's links contain the search
// itself, so the client's parameters are reduced to those that the gateway evaluates. If there are policies, all parameters are
// included, so that each page can be judged.
func (x Pages) ContinuedSearchPage(c message.Call, i interaction.Interaction, at Position) Page {
	if x.FullRequestLinks {
		return FullRequestPage(c, at)
	}
	p := Page{Path: c.SearchPath(), Position: at}
	if i.Kind == interaction.CompartmentSearch {
		p.Path = i.Path()
	}
	p.Query = smart.EncodeParameters(slices.DeleteFunc(slices.Clone(i.Parameters), func(p smart.Parameter) bool { return !isNeededForPages(i.Type, p) }))
	return p
}

// isNeededForPages reports whether a parameter is still needed after the first page: it controls the results, or its patient
// determines the branches of the search.
func isNeededForPages(resourceType string, p smart.Parameter) bool {
	switch name, _, _ := strings.Cut(p.Name, ":"); {
	case name == "_count", name == "_sort", name == "_type", name == "patient", ControlsResults(p):
		return true
	default:
		by, ok := searchparam.Lookup(resourceType, name)
		return ok && compartment.IsMembership(resourceType, by)
	}
}

// ControlsResults reports whether a parameter controls the content of results or which resources are included.
func ControlsResults(p smart.Parameter) bool {
	name, _, _ := strings.Cut(p.Name, ":")
	return name == "_include" || name == "_revinclude" || name == "_summary" || name == "_elements"
}

// Seal returns the link to a page.
func (x Pages) Seal(ctx context.Context, p Page) (string, error) {
	sealed, err := x.seal(ctx, p.encode())
	if rejection, ok := errors.AsType[*guard.Error](err); ok {
		return "", rejection
	}
	if err != nil {
		return "", fmt.Errorf("sealing a page link: %w", err)
	}
	return x.Addresses.URL(PagePath+sealed, ""), nil
}

// Open returns the client's request and the position in a sealed link. A link of another token gets 404.
func (x Pages) Open(r *http.Request, sealed string) (c message.Call, i interaction.Interaction, at Position, err error) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return c, i, at, message.NotFound()
	}
	state, err := x.unseal(r.Context(), sealed)
	if err != nil {
		return c, i, at, err
	}
	p, err := decodePage(state)
	if err != nil {
		return c, i, at, fmt.Errorf("decoding page link: %w", err)
	}
	c = message.Call{Method: cmp.Or(p.Method, http.MethodGet), Path: p.Path, Query: p.Query, Body: []byte(p.Body)}
	i, err = c.Interaction()
	return c, i, p.Position, err
}

// ErrForeignLink means that the target of the FHIR server's link is another server.
var ErrForeignLink = errors.New("FHIR server's page link points outside the FHIR base")

// Call returns the call for the page at the position; first is the call for the first page.
func (p BranchPosition) Call(first message.Call) message.Call {
	if p.IsFirst() {
		return first
	}
	return message.NewGet(p.Path, p.Query)
}

// Next returns the position after a page, according to the FHIR server's next link. A link to the same page or to the first one
// is an error.
func (p BranchPosition) Next(links message.Links, requested message.Call) (BranchPosition, error) {
	next := links.Find("next")
	if next == "" {
		return BranchPosition{IsDone: true}, nil
	}
	to, ok := localPosition(next, links.Find("self"), requested.SearchPath())
	if !ok || to.IsFirst() || to.Path == p.Path && to.Query == p.Query {
		return BranchPosition{}, message.NewWithheldError(ErrForeignLink)
	}
	return to, nil
}

// localPosition returns the position of a link below the FHIR server's base. The base is the self link without the requested
// path; if that fails, it is the part of the link before the first resource type.
func localPosition(address, self, requestPath string) (BranchPosition, bool) {
	u, err := url.Parse(address)
	if err != nil {
		return BranchPosition{}, false
	}
	base, ok := BaseOf(self, requestPath)
	if !ok {
		base = pathBeforeType(absolutePath(u))
	}
	rest, isBelow := strings.CutPrefix(absolutePath(u), base)
	return BranchPosition{Path: strings.Trim(rest, "/"), Query: u.RawQuery}, isBelow && (rest == "" || rest[0] == '/')
}

// BaseOf returns the path of a link without the requested path.
func BaseOf(link, requestPath string) (string, bool) {
	u, err := url.Parse(link)
	if err != nil || link == "" {
		return "", false
	}
	path := strings.TrimSuffix(strings.TrimSuffix(absolutePath(u), "/_search"), "/")
	if requestPath == "" {
		return pathBeforeType(path), true
	}
	return strings.CutSuffix(path, "/"+requestPath)
}

// absolutePath returns the path of a URL. A relative path is resolved against the server's root.
func absolutePath(u *url.URL) string { return "/" + strings.TrimPrefix(u.Path, "/") }

// pathBeforeType returns the part of a path before its first resource type.
func pathBeforeType(path string) string {
	at := 0
	for segment := range strings.SplitSeq(path, "/") {
		if interaction.IsType(segment) {
			return strings.TrimSuffix(path[:at], "/")
		}
		at += len(segment) + 1
	}
	return strings.TrimSuffix(path, "/")
}

// SealLinks returns the links of a Bundle for clients, sealed for the token. The Bundle is a page of the response to a call and
// was requested from the FHIR server at requestPath. A link outside of the FHIR server's base is an error.
func (x Pages) SealLinks(ctx context.Context, c message.Call, requestPath string, links message.Links) (message.Links, error) {
	self := links.Find("self")
	sealed := message.Links{{Relation: "self", URL: x.Addresses.URL(c.Path, c.Query)}}
	firstPage := message.Call{Method: http.MethodGet, Path: c.SearchPath(), Query: c.Query} // pages of a search by POST are requested by GET
	for _, l := range links {
		if l.Relation == "self" {
			continue
		}
		to, ok := localPosition(l.URL, self, requestPath)
		if !ok || to.IsFirst() {
			return nil, fmt.Errorf("%w: link relation %q", ErrForeignLink, l.Relation)
		}
		i, err := firstPage.Interaction()
		if err != nil {
			return nil, err
		}
		address, err := x.Seal(ctx, x.ContinuedSearchPage(firstPage, i, Position{Branches: []BranchPosition{to}}))
		if err != nil {
			return nil, err
		}
		sealed = append(sealed, message.Link{Relation: l.Relation, URL: address})
	}
	return sealed, nil
}

// pagingParameters are the parameters in page links of FHIR servers, in lower case. On many servers, such a link grants access
// to the page, so only the gateway may follow it.
var pagingParameters = []string{
	"_getpages", "_getpagesoffset", "_pageid", "_bundletype", "_page", "_offset", "_cursor", "_skip", "_pagetoken",
	"_page_token", "_continuation", "_continuationtoken", "_searchid", "_queryid", "_stateid", "ct", "page", "search-id",
	"queryid", "searchid",
}

// RejectPagingLinks returns an error if the parameters are those of the FHIR server's own page links.
func RejectPagingLinks(parameters []smart.Parameter) error {
	for _, p := range parameters {
		name, _, _ := strings.Cut(p.Name, ":")
		if slices.Contains(pagingParameters, strings.ToLower(name)) {
			return message.Forbidden(message.ErrDisclosure, "The parameter %s is not allowed: follow the page links of the search response.", name)
		}
	}
	return nil
}

// MaxFetches is the maximum number of pages that are fetched from the FHIR server for one page of a history or an operation.
const MaxFetches = 8
