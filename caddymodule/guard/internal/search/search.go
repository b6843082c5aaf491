package search

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/paging"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// Search answers a search by type, in a compartment, or of the system.
func (x *Searches) Search(ctx context.Context, c message.Call, i interaction.Interaction) (*message.Answer, error) {
	p, err := newPlan(ctx, x, c, i)
	if err != nil {
		return nil, err
	}
	self := x.At.URL(i.Path(), smart.EncodeParameters(p.response.heeded))
	if p.response.onlyTotal {
		n, err := x.count(ctx, p.query, p.branches, p.disclosure)
		if err != nil {
			return nil, err
		}
		out := &message.Bundle{Kind: "searchset", Total: n, Links: message.Links{{Relation: "self", URL: self}}}
		return out.Answer(), nil
	}
	return x.page(ctx, p, paging.Position{}, self)
}

// PageAt answers a link to a page.
func (x *Searches) PageAt(ctx context.Context, c message.Call, i interaction.Interaction, at paging.Position, self string) (*message.Answer, error) {
	p, err := newPlan(ctx, x, c, i)
	if err == nil && len(at.Places) != len(p.branches) {
		err = message.NotFound()
	}
	if err != nil {
		return nil, err
	}
	return x.page(ctx, p, at, self)
}

// Check refuses a search that would be refused, and asks for nothing that it finds but by chains.
func (x *Searches) Check(ctx context.Context, c message.Call, i interaction.Interaction) error {
	_, err := newPlan(ctx, x, c, i)
	return err
}

// page answers with the matches from a position on.
func (x *Searches) page(ctx context.Context, p plan, from paging.Position, self string) (*message.Answer, error) {
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
		localize(x.At.URL("", "")+"/", entries)
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
	return out.Answer(), nil
}

// outcome returns the entry that names the ignored parameters, if there are any.
func outcome(ignored []string) []message.Entry {
	if len(ignored) == 0 {
		return nil
	}
	text := `{"resourceType":"OperationOutcome","issue":[{"severity":"warning","code":"not-supported","diagnostics":` +
		message.Quoted("Unknown search parameters were ignored: "+strings.Join(ignored, ", ")+".") + `}]}`
	return []message.Entry{{Resource: []byte(text), Search: []byte(`{"mode":"outcome"}`)}}
}

// total is the total of a page: that of the FHIR server if it finds just what may be seen, which the pages that follow
// tell, too, until one of them hides a match, or what all pages have had if there are no more. -1 if none is known to be
// right.
func (x *Searches) total(ctx context.Context, p plan, m *merge, from, to paging.Position) (int, error) {
	switch {
	case !p.disclosure.judged:
		return m.told, nil
	case to.IsEnd() && !slices.ContainsFunc(to.Places, func(at paging.Place) bool { return at.Cut }):
		return to.Shown, nil
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

// position returns the position behind the page. A page of the FHIR server of which no match is on ours is read again.
// Otherwise its remaining matches are named: if it was read twice, the server could order it anew.
func (m *merge) position(from paging.Position) paging.Position {
	to := paging.Position{Shown: from.Shown + len(m.matches), Total: from.Total}
	for _, source := range m.sources {
		at := source.next
		if source.before != nil && len(source.matches) > 0 {
			to.Places = append(to.Places, *source.before)
			continue
		}
		for _, rest := range source.matches {
			at.Left = append(at.Left, rest.Parsed.Type+"/"+rest.Parsed.ID)
		}
		at.Left = append(at.Left, source.left...)
		to.Places = append(to.Places, at)
	}
	return to
}

// nextLink is the link to the next page.
func (x *Searches) nextLink(ctx context.Context, c message.Call, i interaction.Interaction, at paging.Position) (string, error) {
	if !slices.ContainsFunc(at.Places, paging.Place.IsFirst) {
		return x.Pages.Seal(ctx, x.Pages.Begun(c, i, at))
	}
	return x.Pages.Seal(ctx, paging.AsSent(c, at))
}

// localize makes judged entries what clients are to see, with URLs below a base. Nothing is said of an entry but what it
// is: a score tells how common words are in all records.
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
	// IncludeMode is the Bundle.entry.search of what comes along.
	IncludeMode = []byte(`{"mode":"include"}`)
)

// maxCounted is how many branches of one type may overlap for their matches to be counted, which takes a request for
// every set of them.
const maxCounted = 4

var errNoTotal = errors.New("the answer tells no total")

// count is the number of matches; a match of several branches counts once.
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

// countUnion counts what some branches of a type find, by inclusion and exclusion.
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

// countBranch asks the FHIR server how much a branch finds.
func (x *Searches) countBranch(ctx context.Context, q query, b branch) (int, error) {
	parameters := slices.Concat(q.parameters, b.confining, []smart.Parameter{{Name: "_summary", Value: "count"}})
	a, err := x.Server.Ask(ctx, b.call(q.method, parameters, 0))
	if err != nil {
		return 0, err
	}
	got, err := x.At.BundleOf(a, false, nil, q.said)
	switch {
	case err != nil:
		return 0, err
	case got.Total < 0:
		return 0, message.Withheld(errNoTotal)
	}
	return got.Total, nil
}
