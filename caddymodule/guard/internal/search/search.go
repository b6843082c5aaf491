package search

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/paging"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/searchparam"
)

// asker asks the FHIR server.
type asker interface {
	Ask(ctx context.Context, c message.Call) (*message.Answer, error)
	Hold(ctx context.Context, c message.Call) (*message.Held, error)
}

// judge says what the token may see.
type judge interface {
	Rights() *access.Rights
	MayDeny() bool
	Covered(ctx context.Context, res resource.Resource, grants []access.Grant) (bool, error)
	Remember(res resource.Resource, grants []access.Grant)
}

// Searches are the searches that one request needs.
type Searches struct {
	Server         asker             // asks the FHIR server
	Judge          judge             // judges what it answers
	At             message.Addresses // names what it holds as clients know it
	Pages          paging.Pages      // seals links to pages
	Parameters     searchparam.Set   // are the search parameters
	Shared         access.Shared     // are the rules of types outside of the compartment
	InCompartments bool              // the server finds a patient's resources by Patient/id/Type
	Requests       int               // to the server that the request may cause
}

// search is a search on its way: what the client asked for, and the branches that answer it.
type search struct {
	x          *Searches
	c          message.Call // the client's
	i          interaction.Interaction
	branches   []branch
	parameters []smart.Parameter // that go to the FHIR server with every branch
	asked      []smart.Parameter // the client's, as far as they are heeded
	order      []sortKey         // by which the branches' results are merged
	count      int               // _count; 0 if the client did not say
	short      bool              // pages are shorter than was asked for, for the sake of their links
	onlyTotal  bool              // _summary=count or _count=0
	accurate   bool              // _total=accurate
	nothing    bool              // a chain has found nothing, so neither does the search
	judged     bool              // entries are looked at one by one
	includes   includes          // how entries other than matches may come
	referring  []chain           // what comes along because it refers to matches, found by searches of our own
	ruled      bool              // the site's rules judge each match, so that the server's total tells too much
	grants     map[granted][]access.Grant
}

// granted is what grants are looked up by.
type granted struct {
	resourceType string
	permission   smart.Permission
}

// Search answers a search by type, in a compartment, or of the system.
func (x *Searches) Search(ctx context.Context, c message.Call, i interaction.Interaction) (*message.Answer, error) {
	s, err := x.NewSearch(ctx, c, i)
	if err != nil {
		return nil, err
	}
	self := x.At.URL(i.Path(), smart.EncodeParameters(s.asked))
	if i.Kind == interaction.SystemSearch {
		self = x.At.URL("", smart.EncodeParameters(s.asked))
	}
	if s.onlyTotal {
		return s.countAlone(ctx, self)
	}
	return s.page(ctx, s.start(), self)
}

const (
	// DefaultCount is how many matches a page has that is judged, if the client does not say; maxCount is the most.
	DefaultCount = 50
	maxCount     = 1000
)

// page answers with the matches from a position on. A page gets shorter if its link to the next one would be too long,
// or, where the FHIR server heeds no _count, as long as the server's.
func (s *search) page(ctx context.Context, from paging.Position, self string) (*message.Answer, error) {
	for {
		a, err := s.pageOf(ctx, from, self)
		switch {
		case !errors.Is(err, paging.ErrLongLink):
			return a, err
		case s.pageSize() > 1:
			s.count, s.short = s.pageSize()/2, true
		case len(s.branches) == 1 && s.count > 0:
			s.count = -1
		default:
			return a, err
		}
	}
}

func (s *search) pageOf(ctx context.Context, from paging.Position, self string) (*message.Answer, error) {
	m, err := s.merged(ctx, from)
	if err != nil {
		return nil, err
	}
	defer m.release()
	if err := m.fill(ctx, s.pageSize()); err != nil {
		return nil, err
	}
	others, err := m.included(ctx)
	if err != nil {
		return nil, err
	}
	to, err := m.position(ctx, from)
	if err != nil {
		return nil, err
	}
	out := &message.Bundle{Kind: "searchset", Entries: s.localized(append(m.matches, others...))}
	out.Links = []message.Link{{Relation: "self", URL: self}}
	if out.Total, err = s.total(ctx, m, from, to); err != nil {
		return nil, err
	}
	if !to.IsEnd() {
		to.Total = max(out.Total, 0)
		next, err := s.nextLink(ctx, to)
		if err != nil {
			return nil, err
		}
		out.Links = append(out.Links, message.Link{Relation: "next", URL: next})
	}
	return out.Answer(), nil
}

// pageSize is how many matches a page has. What is not judged is as long as the FHIR server has it.
func (s *search) pageSize() int {
	switch {
	case !s.judged, s.count < 0:
		return 0
	case s.count > 0:
		return min(s.count, maxCount)
	}
	return DefaultCount
}

// minMerged is how long the pages of branches are at least, many of whose matches other branches may have found.
const minMerged = 20

// branchSize is how many matches are asked for on the first page of a branch; 0 leaves it to the FHIR server.
func (s *search) branchSize() int {
	count := cmp.Or(s.pageSize(), min(s.count, maxCount))
	if len(s.branches) > 1 && !s.short {
		count = max(count, minMerged)
	}
	return max(count, 0)
}

// branchCall asks for the first page of a branch, of a size.
func (s *search) branchCall(n, size int) message.Call {
	parameters := slices.Concat(s.parameters, s.branches[n].confining)
	if size > 0 {
		parameters = append(parameters, smart.Parameter{Name: "_count", Value: strconv.Itoa(size)})
	}
	return searchCall(s.c.Method, s.branches[n].path(), parameters)
}

// searchCall is a search in parts. One that came in a body goes on in a body, which keeps it out of logs.
func searchCall(method, path string, parameters []smart.Parameter) message.Call {
	text := smart.EncodeParameters(parameters)
	if method != http.MethodPost {
		return message.Get(path, text)
	}
	header := http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}
	return message.Call{Method: http.MethodPost, Path: paging.Joined(path, "_search"), Header: header, Body: []byte(text)}
}

// keeps reports whether a match of a branch may be seen, and has not been found by an earlier one. What the FHIR server
// finds beyond the branch is dropped.
func (s *search) keeps(ctx context.Context, e *message.Entry, branch int) (bool, error) {
	b := s.branches[branch]
	if b.resourceType != "" && b.resourceType != smart.AnyType && b.resourceType != e.Parsed.Type {
		return false, nil
	}
	if s.isFound(e.Parsed, branch) {
		return false, nil
	}
	ok, err := s.x.Judge.Covered(ctx, e.Parsed, s.grantsFor(e.Parsed.Type, smart.Search))
	if ok && s.includes.any() {
		s.x.Judge.Remember(e.Parsed, s.grantsFor(e.Parsed.Type, smart.Search))
	}
	return ok, err
}

// localized are the entries as clients are to see them. Of a judged one nothing is said but what it is: a score tells
// how common words are in all records.
func (s *search) localized(entries []message.Entry) []message.Entry {
	if !s.judged {
		s.x.At.LocalizeEntries(entries)
		return entries
	}
	base := s.x.At.URL("", "") + "/"
	for i := range entries {
		e := &entries[i]
		e.FullURL = base + e.Parsed.Type + "/" + e.Parsed.ID
		e.Search = matchMode
		if e.Mode == "include" {
			e.Search = IncludeMode
		}
		e.Request, e.Response = nil, nil
	}
	return entries
}

var (
	matchMode = []byte(`{"mode":"match"}`)
	// IncludeMode is the Bundle.entry.search of what comes along.
	IncludeMode = []byte(`{"mode":"include"}`)
)

// grantsFor are the rights' grants, looked up once.
func (s *search) grantsFor(resourceType string, p smart.Permission) []access.Grant {
	key := granted{resourceType, p}
	grants, ok := s.grants[key]
	if !ok {
		grants = s.x.Judge.Rights().For(resourceType, p)
		if s.grants == nil {
			s.grants = map[granted][]access.Grant{}
		}
		s.grants[key] = grants
	}
	return grants
}

// PageAt answers a link to a page.
func (x *Searches) PageAt(ctx context.Context, c message.Call, i interaction.Interaction, at paging.Position, self string) (*message.Answer, error) {
	s, err := x.NewSearch(ctx, c, i)
	if err != nil {
		return nil, err
	}
	return s.page(ctx, at, self)
}

// nextLink is the link to the next page.
func (s *search) nextLink(ctx context.Context, at paging.Position) (string, error) {
	if !slices.ContainsFunc(at.Places, paging.Place.IsFirst) {
		return s.x.Pages.Seal(ctx, s.x.Pages.Begun(s.c, s.i, at))
	}
	return s.x.Pages.Seal(ctx, paging.AsSent(s.c, at))
}
