package search

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/paging"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// Search answers a search by type, in a compartment, or of the system.
func (x *Searches) Search(ctx context.Context, c message.Call, i interaction.Interaction) (*message.Response, error) {
	p, err := newPlan(ctx, x, c, i)
	if err != nil {
		return nil, err
	}
	self := x.Addresses.URL(i.Path(), smart.EncodeParameters(p.response.heeded))
	if p.response.onlyTotal {
		n, err := x.count(ctx, p.query, p.branches, p.disclosure)
		if err != nil {
			return nil, err
		}
		out := &message.Bundle{Kind: "searchset", Total: n, Links: message.Links{{Relation: "self", URL: self}}}
		return out.Response(), nil
	}
	return x.page(ctx, p, paging.Position{}, self)
}

// PageAt answers a page link.
func (x *Searches) PageAt(ctx context.Context, c message.Call, i interaction.Interaction, at paging.Position, self string) (*message.Response, error) {
	p, err := newPlan(ctx, x, c, i)
	if err == nil && len(at.Branches) != len(p.branches) {
		err = message.NotFound()
	}
	if err != nil {
		return nil, err
	}
	return x.page(ctx, p, at, self)
}

// Check returns the rejection of a search without executing it; only chains are resolved.
func (x *Searches) Check(ctx context.Context, c message.Call, i interaction.Interaction) error {
	_, err := newPlan(ctx, x, c, i)
	return err
}

// page returns the page of matches from a position on.
func (x *Searches) page(ctx context.Context, p plan, from paging.Position, self string) (*message.Response, error) {
	m := newMerge(x, p, from)
	defer func() { m.pages.release(m.matches) }()
	entries, err := m.entries(ctx, p.along)
	if err != nil {
		return nil, err
	}
	to := m.position(from)
	total, err := x.total(ctx, p, m, from, to)
	if err != nil {
		return nil, err
	}
	if p.disclosure.judged {
		localize(x.Addresses.URL("", "")+"/", entries)
	}
	out := &message.Bundle{Kind: "searchset", Total: total, Entries: entries, Links: message.Links{{Relation: "self", URL: self}}}
	if from.IsStart() {
		out.Entries = append(out.Entries, outcome(p.response.ignored)...)
	}
	if !to.IsEnd() {
		to.Total = max(total, 0)
		next, err := x.nextLink(ctx, p.call, p.interaction, to)
		if err != nil {
			return nil, err
		}
		out.Links = append(out.Links, message.Link{Relation: "next", URL: next})
	}
	return out.Response(), nil
}

// outcome returns the entry that lists the ignored parameters; nil if none.
func outcome(ignored []string) []message.Entry {
	if len(ignored) == 0 {
		return nil
	}
	text := `{"resourceType":"OperationOutcome","issue":[{"severity":"warning","code":"not-supported","diagnostics":` +
		message.Quoted("Unknown search parameters were ignored: "+strings.Join(ignored, ", ")+".") + `}]}`
	return []message.Entry{{Resource: []byte(text), Search: []byte(`{"mode":"outcome"}`)}}
}

// total returns the total of a page: the FHIR server's total if it counts only visible matches, or the number of matches on
// all pages if this page is the last. Later pages repeat the first page's total until a page hides a match. -1 means
// unknown.
func (x *Searches) total(ctx context.Context, p plan, m *merge, from, to paging.Position) (int, error) {
	switch {
	case !p.disclosure.judged:
		return m.told, nil
	case to.IsEnd() && !slices.ContainsFunc(to.Branches, func(at paging.BranchPosition) bool { return at.MayBeIncomplete }):
		return to.ReturnedCount, nil
	case from.Total > 0 && (m.dropped == 0 || len(p.branches) > 1):
		return from.Total, nil
	case p.disclosure.ruled || !from.IsStart():
		return -1, nil
	case len(p.branches) == 1 && m.dropped == 0 && p.disclosure.countable:
		return m.told, nil
	case p.response.accurate:
		return x.count(ctx, p.query, p.branches, p.disclosure)
	}
	return -1, nil
}

// position returns the position after the page. A page of the FHIR server that contributed no match is read again. For any
// other page, the position lists the remaining matches: on a second read, the FHIR server could order the page differently.
func (m *merge) position(from paging.Position) paging.Position {
	to := paging.Position{ReturnedCount: from.ReturnedCount + len(m.matches), Total: from.Total}
	for _, source := range m.sources {
		at := source.next
		if source.before != nil && len(source.matches) > 0 {
			to.Branches = append(to.Branches, *source.before)
			continue
		}
		for _, rest := range source.matches {
			at.Pending = append(at.Pending, rest.Parsed.Type+"/"+rest.Parsed.ID)
		}
		at.Pending = append(at.Pending, source.left...)
		to.Branches = append(to.Branches, at)
	}
	return to
}

// nextLink returns the link to the next page.
func (x *Searches) nextLink(ctx context.Context, c message.Call, i interaction.Interaction, at paging.Position) (string, error) {
	if !slices.ContainsFunc(at.Branches, paging.BranchPosition.IsFirst) {
		return x.Pages.Seal(ctx, x.Pages.AllStarted(c, i, at))
	}
	return x.Pages.Seal(ctx, paging.FullRequestPage(c, at))
}

// localize sets the public URL of judged entries, and removes everything but the resource and its mode. A score, for
// example, reveals how common words are in all records.
func localize(base string, entries []message.Entry) {
	for i := range entries {
		e := &entries[i]
		e.FullURL = base + e.Parsed.Type + "/" + e.Parsed.ID
		e.Search = matchMode
		if e.Mode == "include" {
			e.Search = IncludeMode
		}
		e.Request, e.Response = nil, nil
	}
}

var (
	matchMode = []byte(`{"mode":"match"}`)
	// IncludeMode is the Bundle.entry.search of included entries.
	IncludeMode = []byte(`{"mode":"include"}`)
)

// maxCounted is the maximum number of overlapping branches of a type for a count, which needs one request for each of their
// subsets.
const maxCounted = 4

var errNoTotal = errors.New("the answer tells no total")

// count returns the number of matches. A match of several branches counts once.
func (x *Searches) count(ctx context.Context, q query, branches []branch, d disclosure) (int, error) {
	if q.nothing {
		return 0, nil
	}
	if !d.mayCount() {
		return 0, message.Forbidden(message.ErrOracle, "The number of matches is not told under these scopes: some could be records of others.")
	}
	total := 0
	for rest := branches; len(rest) > 0; {
		n := 1
		for n < len(rest) && rest[n].resourceType == rest[0].resourceType {
			n++
		}
		of, err := x.countUnion(ctx, q, rest[:n])
		if err != nil {
			return 0, err
		}
		total, rest = total+of, rest[n:]
	}
	return total, nil
}

// countUnion returns the number of resources that any of the branches of a type finds, by inclusion and exclusion.
func (x *Searches) countUnion(ctx context.Context, q query, branches []branch) (int, error) {
	if len(branches) > maxCounted {
		return 0, message.TooCostly("The number of matches is not told under these scopes: too many searches find them.")
	}
	total := 0
	for set := 1; set < 1<<len(branches); set++ {
		both, sign := branch{}, -1
		for i, b := range branches {
			if set&(1<<i) != 0 {
				sign = -sign
				if set&(1<<i-1) == 0 {
					both = b
				} else if !both.intersect(b) {
					return 0, message.TooCostly("The number of matches is not told under these scopes: they are about several patients.")
				}
			}
		}
		n, err := x.countBranch(ctx, q, both)
		if err != nil {
			return 0, err
		}
		total += sign * n
	}
	return max(total, 0), nil
}

// countBranch requests the number of matches of a branch from the FHIR server.
func (x *Searches) countBranch(ctx context.Context, q query, b branch) (int, error) {
	parameters := slices.Concat(q.parameters, b.confining, []smart.Parameter{{Name: "_summary", Value: "count"}})
	a, err := x.Server.Do(ctx, b.call(q.method, parameters, 0))
	if err != nil {
		return 0, err
	}
	got, err := x.Addresses.BundleOf(a, false, nil, q.said)
	switch {
	case err != nil:
		return 0, err
	case got.Total < 0:
		return 0, message.NewWithheldError(errNoTotal)
	}
	return got.Total, nil
}

// Selection is a search for the single resource that matches criteria, limited by the client's scopes.
type Selection struct {
	x    *Searches
	plan plan
	// Parameters are the criteria after the rules for searches.
	Parameters []smart.Parameter
	// Nothing is true if a chain matched nothing, so the criteria match nothing.
	Nothing bool
	// Selects is true if the criteria contain only conditions on resources.
	Selects bool
}

// Selecting plans a selection among the resources of a type.
func (x *Searches) Selecting(ctx context.Context, resourceType string, parameters []smart.Parameter) (*Selection, error) {
	i := interaction.Interaction{Kind: interaction.TypeSearch, Type: resourceType, Parameters: parameters}
	p, err := newPlan(ctx, x, message.Get(resourceType, ""), i)
	if err != nil {
		return nil, err
	}
	return &Selection{x, p, p.query.parameters, p.query.nothing, p.along.includes == (includes{}) && !p.response.onlyTotal && p.response.count == 0}, nil
}

var errSeveral = errors.New("several resources match the criteria")

// One returns the id of the single match among the resources that the client may find; empty without a match. Several
// matches are an error (412).
func (of *Selection) One(ctx context.Context) (string, error) {
	p := of.plan
	p.response.count, p.disclosure.judged = 2, true
	var found []message.Entry
	err := of.x.eachOf(ctx, p, of.x.Requests, func(e *message.Entry) error {
		if found = append(found, *e); len(found) > 1 {
			return errSeveral
		}
		return nil
	})
	if err != nil && !errors.Is(err, errSeveral) {
		return "", err
	}
	switch len(found) {
	case 0:
		return "", nil
	case 1:
		return found[0].Parsed.ID, nil
	}
	return "", &guard.Error{Status: http.StatusPreconditionFailed, Description: "Several resources match the criteria.", Err: errSeveral}
}

// maxLookUps is the maximum number of pages of the FHIR server that are read for one link of a chain.
const maxLookUps = 10

// each calls a function with each resource that a search by this client would find.
func (x *Searches) each(ctx context.Context, resourceType string, p smart.Parameter, do func(*message.Entry) error) error {
	parameters := []smart.Parameter{{Name: "_count", Value: "200"}}
	if p.Name != "_type" { // the path names the type
		parameters = append(parameters, p)
	}
	i := interaction.Interaction{Kind: interaction.TypeSearch, Type: resourceType, Parameters: parameters}
	found, err := newPlan(ctx, x, message.Get(resourceType, ""), i)
	if err != nil {
		return err
	}
	found.disclosure.judged = true
	return x.eachOf(ctx, found, maxLookUps, do)
}

// eachOf calls a function with each match of a plan. It fails if the matches fill more than this number of pages of the
// FHIR server.
func (x *Searches) eachOf(ctx context.Context, p plan, pages int, do func(*message.Entry) error) error {
	m := newMerge(x, p, paging.Position{})
	m.most = pages * len(p.branches)
	e, err := m.next(ctx)
	for ; err == nil && e != nil; e, err = m.next(ctx) {
		if err := do(e); err != nil {
			return err
		}
	}
	if err == nil && slices.ContainsFunc(m.sources, func(from source) bool { return !from.next.Done || from.next.MayBeIncomplete || len(from.left) > 0 }) {
		err = message.TooCostly("The chained search finds too much in between under these scopes.")
	}
	return err
}
