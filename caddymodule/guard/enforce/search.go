package enforce

import (
	"context"
	"net/http"
	"slices"
	"strconv"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// search is a search on its way: what the client asked for, and the branches that answer it.
type search struct {
	x          *exchange
	c          call // the client's
	branches   []branch
	parameters []smart.Parameter // the client's, without those that are done here
	count      int               // _count; 0 if the client did not say
	onlyTotal  bool              // _summary=count or _count=0
	judged     bool              // entries are looked at one by one
	includes   bool              // entries other than matches may come
	ruled      bool              // the site's rules judge each match, so that the server's total tells too much
}

// search answers a search by type, in a compartment, or of the system.
func (x *exchange) search(ctx context.Context, c call, i interaction.Interaction) (*answer, error) {
	s, err := x.newSearch(ctx, c, i)
	if err != nil {
		return nil, err
	}
	if s.onlyTotal {
		return s.total(ctx)
	}
	return s.page(ctx, position{})
}

// position is how far the pages of a search have come.
type position struct {
	// Branch is the one that is next.
	Branch int `json:"b,omitempty"`
	// Path and Query are the next page of the branch on the FHIR server. Empty: the branch has not begun.
	Path  string `json:"p,omitempty"`
	Query string `json:"q,omitempty"`
}

const (
	// maxFetches is how many pages of the FHIR server one page of ours is made of, at most.
	maxFetches = 8
	// defaultCount is how many matches a page of several branches has, if the client does not say.
	defaultCount = 50
)

// page answers with the matches from a position on.
func (s *search) page(ctx context.Context, at position) (*answer, error) {
	out := &bundle{kind: "searchset", total: -1}
	matches, exact := 0, at == position{}
	for fetched := 0; at.Branch < len(s.branches) && fetched < maxFetches; fetched++ {
		got, err := s.fetch(ctx, at, matches)
		if err != nil {
			return nil, err
		}
		kept, dropped, err := s.kept(ctx, got, at.Branch)
		if err != nil {
			return nil, err
		}
		out.entries = append(out.entries, kept...)
		matches += matchesOf(kept)
		exact = exact && dropped == 0
		if exact && !s.ruled && len(s.branches) == 1 {
			out.total = got.total
		}
		if at, err = s.after(at, got); err != nil {
			return nil, err
		}
		if s.isEnough(at, matches) {
			break
		}
	}
	return s.finish(ctx, out, at)
}

// isEnough reports whether a page is full. A branch that has begun decides itself how long its pages are, so it goes
// on only while there is nothing to show.
func (s *search) isEnough(at position, matches int) bool {
	if at.Path != "" || at.Query != "" {
		return matches > 0
	}
	return matches >= s.pageSize()
}

func (s *search) pageSize() int {
	if s.count > 0 {
		return s.count
	}
	return defaultCount
}

// fetch asks the FHIR server for the page at a position.
func (s *search) fetch(ctx context.Context, at position, matches int) (*bundle, error) {
	c := call{method: http.MethodGet, path: at.Path, query: at.Query}
	if at.Path == "" && at.Query == "" {
		c = s.branchCall(s.branches[at.Branch], matches)
	}
	a, err := s.x.ask(ctx, c)
	if err != nil {
		return nil, err
	}
	return s.x.bundleOf(a)
}

// branchCall is the search of a branch, by the client's method: who sends parameters in a body keeps them out of logs.
func (s *search) branchCall(b branch, matches int) call {
	parameters := slices.Concat(s.parameters, b.confining)
	if s.count > 0 || len(s.branches) > 1 {
		parameters = append(parameters, smart.Parameter{Name: "_count", Value: strconv.Itoa(s.pageSize() - matches)})
	}
	return searchCall(s.c.method, b.path(), parameters)
}

// searchCall is a search in parts.
func searchCall(method, path string, parameters []smart.Parameter) call {
	text := encode(parameters)
	if method != http.MethodPost {
		return get(path, text)
	}
	header := http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}
	return call{method: http.MethodPost, path: joined(path, "_search"), header: header, body: []byte(text)}
}

// after is the position behind a page.
func (s *search) after(at position, got *bundle) (position, error) {
	next := got.linked("next")
	if next == "" {
		return position{Branch: at.Branch + 1}, nil
	}
	path, query, err := s.x.local(next, got.linked("self"), at, s)
	return position{Branch: at.Branch, Path: path, Query: query}, err
}

// kept are the entries of a branch's page that the client may see, and how many matches were dropped: those that an
// earlier branch has found as well, and those that the server should not have found.
func (s *search) kept(ctx context.Context, got *bundle, branch int) (kept []entry, dropped int, err error) {
	if !s.judged {
		s.x.localizeEntries(got.entries)
		return got.entries, 0, nil
	}
	var included []entry
	for _, e := range got.entries {
		if e.mode == "outcome" {
			continue
		}
		ok, err := s.keeps(ctx, e, branch)
		switch {
		case err != nil:
			return nil, 0, err
		case ok && e.mode == "include":
			included = append(included, e)
		case ok:
			kept = append(kept, e)
		case e.mode != "include":
			dropped++
		}
	}
	if len(included) > 0 {
		kept = append(kept, reachable(kept, included)...)
	}
	s.x.localizeEntries(kept)
	return kept, dropped, nil
}

// keeps reports whether an entry may be seen.
func (s *search) keeps(ctx context.Context, e entry, branch int) (bool, error) {
	res, err := s.x.parse(e.resource)
	if err != nil {
		return false, err
	}
	if e.mode == "include" {
		return s.x.covered(ctx, res, s.includeGrants(res.Type))
	}
	if s.isFound(res, branch) {
		return false, nil
	}
	return s.x.covered(ctx, res, s.x.rights.For(res.Type, smart.Search))
}

// includeGrants are the grants for what comes along with matches: what may be searched, and what may be read, since
// the match names it.
func (s *search) includeGrants(resourceType string) []access.Grant {
	return slices.Concat(s.x.rights.For(resourceType, smart.Search), s.x.rights.For(resourceType, smart.Read))
}

func matchesOf(entries []entry) int {
	n := 0
	for _, e := range entries {
		if e.mode != "include" {
			n++
		}
	}
	return n
}

// finish adds the links.
func (s *search) finish(ctx context.Context, out *bundle, at position) (*answer, error) {
	if len(s.branches) > 1 && at.Branch >= len(s.branches) && out.total < 0 {
		out.total = -1
	}
	out.links = []link{{Relation: "self", URL: s.x.url(s.c.path, s.c.query)}}
	if at.Branch < len(s.branches) {
		next, err := s.x.pageLink(ctx, s.c, at)
		if err != nil {
			return nil, err
		}
		out.links = append(out.links, link{Relation: "next", URL: next})
	}
	return newAnswer(http.StatusOK, out.text()), nil
}
