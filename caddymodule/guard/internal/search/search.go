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
func (x *Handler) Search(ctx context.Context, c message.Call, i interaction.Interaction) (*message.Response, error) {
	p, err := newPlan(ctx, x, c, i)
	if err != nil {
		return nil, err
	}
	self := x.Addresses.URL(i.Path(), smart.EncodeParameters(p.response.effective))
	if p.response.onlyTotal {
		n, err := x.count(ctx, p.query, p.branches, p.disclosure)
		if err != nil {
			return nil, err
		}
		out := &message.Bundle{Type: "searchset", Total: n, Links: message.Links{{Relation: "self", URL: self}}}
		return out.Response(), nil
	}
	return x.buildPage(ctx, p, paging.Position{}, self)
}

// HandlePage answers a page link.
func (x *Handler) HandlePage(ctx context.Context, c message.Call, i interaction.Interaction, at paging.Position, self string) (*message.Response, error) {
	p, err := newPlan(ctx, x, c, i)
	if err == nil && len(at.Branches) != len(p.branches) {
		err = message.NotFound()
	}
	if err != nil {
		return nil, err
	}
	return x.buildPage(ctx, p, at, self)
}

// CheckSearch returns the rejection of a search, if any. It does not execute the search, but resolves chains.
func (x *Handler) CheckSearch(ctx context.Context, c message.Call, i interaction.Interaction) error {
	_, err := newPlan(ctx, x, c, i)
	return err
}

// buildPage returns the page of matches that begins at a position.
func (x *Handler) buildPage(ctx context.Context, p searchPlan, from paging.Position, self string) (*message.Response, error) {
	m := newMerger(x, p, from)
	defer func() { m.pages.release(m.matches) }()
	entries, err := m.pageEntries(ctx, p.inclusions)
	if err != nil {
		return nil, err
	}
	to := m.positionAfter(from)
	total, err := x.pageTotal(ctx, p, m, from, to)
	if err != nil {
		return nil, err
	}
	if p.disclosure.isJudged {
		localize(x.Addresses.URL("", "")+"/", entries)
	}
	out := &message.Bundle{Type: "searchset", Total: total, Entries: entries, Links: message.Links{{Relation: "self", URL: self}}}
	if from.IsStart() {
		out.Entries = append(out.Entries, ignoredOutcome(p.response.ignored)...)
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

// ignoredOutcome returns an entry that lists the ignored parameters, or nil if there are none.
func ignoredOutcome(ignored []string) []message.Entry {
	if len(ignored) == 0 {
		return nil
	}
	text := `{"resourceType":"OperationOutcome","issue":[{"severity":"warning","code":"not-supported","diagnostics":` +
		message.QuoteJSON("Unknown search parameters were ignored: "+strings.Join(ignored, ", ")+".") + `}]}`
	return []message.Entry{{Resource: []byte(text), Search: []byte(`{"mode":"outcome"}`)}}
}

// pageTotal returns the total for a page: the FHIR server's total if it counts only visible matches, or the number of matches
// on all pages if this page is the last. Later pages repeat the first page's total until a match is withheld. -1 means unknown.
func (x *Handler) pageTotal(ctx context.Context, p searchPlan, m *merger, from, to paging.Position) (int, error) {
	switch {
	case !p.disclosure.isJudged:
		return m.serverTotal, nil
	case to.IsEnd() && !slices.ContainsFunc(to.Branches, func(at paging.BranchPosition) bool { return at.MayBeIncomplete }):
		return to.ReturnedCount, nil
	case from.Total > 0 && (m.droppedCount == 0 || len(p.branches) > 1):
		return from.Total, nil
	case p.disclosure.hasPolicies || !from.IsStart():
		return -1, nil
	case len(p.branches) == 1 && m.droppedCount == 0 && p.disclosure.isCountable:
		return m.serverTotal, nil
	case p.response.accurateTotal:
		return x.count(ctx, p.query, p.branches, p.disclosure)
	}
	return -1, nil
}

// positionAfter returns the position after the page. A page of the FHIR server that contributed no match will be read again.
// For other pages, the position lists the remaining matches, because the order could differ when the page is read again.
func (m *merger) positionAfter(from paging.Position) paging.Position {
	to := paging.Position{ReturnedCount: from.ReturnedCount + len(m.matches), Total: from.Total}
	for _, source := range m.sources {
		at := source.nextPage
		if source.currentPage != nil && len(source.matches) > 0 {
			to.Branches = append(to.Branches, *source.currentPage)
			continue
		}
		for _, rest := range source.matches {
			at.Pending = append(at.Pending, rest.ParsedResource.Type+"/"+rest.ParsedResource.ID)
		}
		at.Pending = append(at.Pending, source.pendingIDs...)
		to.Branches = append(to.Branches, at)
	}
	return to
}

// nextLink returns the link to the next page.
func (x *Handler) nextLink(ctx context.Context, c message.Call, i interaction.Interaction, at paging.Position) (string, error) {
	if !slices.ContainsFunc(at.Branches, paging.BranchPosition.IsFirst) {
		return x.Pages.Seal(ctx, x.Pages.ContinuedSearchPage(c, i, at))
	}
	return x.Pages.Seal(ctx, paging.FullRequestPage(c, at))
}

// localize sets the public URLs of judged entries and removes everything but the resource and its mode. For example, a score
// reveals how common words are in all records.
func localize(base string, entries []message.Entry) {
	for i := range entries {
		e := &entries[i]
		e.FullURL = base + e.ParsedResource.Type + "/" + e.ParsedResource.ID
		e.Search = matchSearch
		if e.Mode == "include" {
			e.Search = IncludeSearch
		}
		e.Request, e.Response = nil, nil
	}
}

var (
	matchSearch = []byte(`{"mode":"match"}`)
	// IncludeSearch is the Bundle.entry.search of included entries.
	IncludeSearch = []byte(`{"mode":"include"}`)
)

// maxCountedBranches is the maximum number of overlapping branches of a type for computing a total, which requires one request
// for each of their subsets.
const maxCountedBranches = 4

var errNoTotal = errors.New("search response has no total")

// count returns the number of matches. A match of several branches is counted once.
func (x *Handler) count(ctx context.Context, q query, branches []branch, d disclosure) (int, error) {
	if q.matchesNothing {
		return 0, nil
	}
	if !d.mayCount() {
		return 0, message.Forbidden(message.ErrDisclosure, "The total is not available with these scopes: it could count other patients' records.")
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

// countUnion returns the number of resources that the branches of a type find together, by inclusion and exclusion.
func (x *Handler) countUnion(ctx context.Context, q query, branches []branch) (int, error) {
	if len(branches) > maxCountedBranches {
		return 0, message.TooCostly("The total is not available with these scopes: counting the matches requires too many searches.")
	}
	total := 0
	for set := 1; set < 1<<len(branches); set++ {
		intersection, sign := branch{}, -1
		for i, b := range branches {
			if set&(1<<i) != 0 {
				sign = -sign
				if set&(1<<i-1) == 0 {
					intersection = b
				} else if !intersection.intersect(b) {
					return 0, message.TooCostly("The total is not available with these scopes: they cover several patients.")
				}
			}
		}
		n, err := x.countBranch(ctx, q, intersection)
		if err != nil {
			return 0, err
		}
		total += sign * n
	}
	return max(total, 0), nil
}

// countBranch requests the number of matches of a branch from the FHIR server.
func (x *Handler) countBranch(ctx context.Context, q query, b branch) (int, error) {
	parameters := slices.Concat(q.parameters, b.confiningParameters, []smart.Parameter{{Name: "_summary", Value: "count"}})
	a, err := x.Server.Do(ctx, b.call(q.method, parameters, 0))
	if err != nil {
		return 0, err
	}
	got, err := x.Addresses.ParseSearchResponse(a, false, nil, q.sentTerms)
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
	handler *Handler
	plan    searchPlan
	// Parameters are the criteria after applying the search rules.
	Parameters []smart.Parameter
	// MatchesNothing is true if a chain matched nothing. The criteria then match nothing.
	MatchesNothing bool
	// HasOnlyConditions is true if the criteria contain only conditions on resources.
	HasOnlyConditions bool
}

// PlanSelection plans a selection among the resources of a type.
func (x *Handler) PlanSelection(ctx context.Context, resourceType string, parameters []smart.Parameter) (*Selection, error) {
	i := interaction.Interaction{Kind: interaction.TypeSearch, Type: resourceType, Parameters: parameters}
	p, err := newPlan(ctx, x, message.NewGet(resourceType, ""), i)
	if err != nil {
		return nil, err
	}
	return &Selection{x, p, p.query.parameters, p.query.matchesNothing, p.inclusions.kinds == (includes{}) && !p.response.onlyTotal && p.response.count == 0}, nil
}

var errMultipleMatches = errors.New("multiple resources match the criteria")

// FindOne returns the id of the single match among the resources that the client may find, or "" if there is no match. Several
// matches are an error (412).
func (of *Selection) FindOne(ctx context.Context) (string, error) {
	p := of.plan
	p.response.count, p.disclosure.isJudged = 2, true
	var found []message.Entry
	err := of.handler.eachPlanMatch(ctx, p, of.handler.MaxRequests, func(e *message.Entry) error {
		if found = append(found, *e); len(found) > 1 {
			return errMultipleMatches
		}
		return nil
	})
	if err != nil && !errors.Is(err, errMultipleMatches) {
		return "", err
	}
	switch len(found) {
	case 0:
		return "", nil
	case 1:
		return found[0].ParsedResource.ID, nil
	}
	return "", &guard.Error{Status: http.StatusPreconditionFailed, Description: "Multiple resources match the criteria.", Err: errMultipleMatches}
}

// maxChainPages is the maximum number of pages of the FHIR server read for one link of a chain.
const maxChainPages = 10

// eachMatch calls a function on each resource that a search by this client would find.
func (x *Handler) eachMatch(ctx context.Context, resourceType string, p smart.Parameter, do func(*message.Entry) error) error {
	parameters := []smart.Parameter{{Name: "_count", Value: "200"}}
	if p.Name != "_type" { // the path contains the type
		parameters = append(parameters, p)
	}
	i := interaction.Interaction{Kind: interaction.TypeSearch, Type: resourceType, Parameters: parameters}
	found, err := newPlan(ctx, x, message.NewGet(resourceType, ""), i)
	if err != nil {
		return err
	}
	found.disclosure.isJudged = true
	return x.eachPlanMatch(ctx, found, maxChainPages, do)
}

// eachPlanMatch calls a function on each match of a plan. It returns an error if the matches fill more than the given number of
// pages of the FHIR server.
func (x *Handler) eachPlanMatch(ctx context.Context, p searchPlan, pages int, do func(*message.Entry) error) error {
	m := newMerger(x, p, paging.Position{})
	m.maxPages = pages * len(p.branches)
	e, err := m.next(ctx)
	for ; err == nil && e != nil; e, err = m.next(ctx) {
		if err := do(e); err != nil {
			return err
		}
	}
	if err == nil && slices.ContainsFunc(m.sources, func(from branchState) bool {
		return !from.nextPage.IsDone || from.nextPage.MayBeIncomplete || len(from.pendingIDs) > 0
	}) {
		err = message.TooCostly("With these scopes, the chained search matches too many intermediate resources.")
	}
	return err
}
