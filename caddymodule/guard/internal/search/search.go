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
	s, err := newPlan(ctx, x, x.each, c, i)
	if err != nil {
		return nil, err
	}
	self := x.At.URL(i.Path(), smart.EncodeParameters(s.asked))
	if s.onlyTotal {
		n, err := s.counted(ctx)
		if err != nil {
			return nil, err
		}
		out := &message.Bundle{Kind: "searchset", Total: n, Links: message.Links{{Relation: "self", URL: self}}}
		return out.Answer(), nil
	}
	return s.page(ctx, paging.Position{}, self)
}

// PageAt answers a link to a page.
func (x *Searches) PageAt(ctx context.Context, c message.Call, i interaction.Interaction, at paging.Position, self string) (*message.Answer, error) {
	s, err := newPlan(ctx, x, x.each, c, i)
	if err == nil && len(at.Places) != len(s.branches) {
		err = message.NotFound()
	}
	if err != nil {
		return nil, err
	}
	return s.page(ctx, at, self)
}

// Check refuses a search that would be refused, and asks for nothing that it finds but by chains.
func (x *Searches) Check(ctx context.Context, c message.Call, i interaction.Interaction) error {
	_, err := newPlan(ctx, x, x.each, c, i)
	return err
}

// page answers with the matches from a position on.
func (s *plan) page(ctx context.Context, from paging.Position, self string) (*message.Answer, error) {
	m := newMerge(s, from)
	defer m.release()
	entries, err := m.fill(ctx)
	if err != nil {
		return nil, err
	}
	to := m.position(from)
	total, err := s.total(ctx, m, from, to)
	if err != nil {
		return nil, err
	}
	out := &message.Bundle{Kind: "searchset", Total: total, Entries: s.localized(entries), Links: message.Links{{Relation: "self", URL: self}}}
	if from.IsStart() {
		out.Entries = append(out.Entries, s.outcome()...)
	}
	if !to.IsEnd() {
		to.Total = max(total, 0)
		next, err := s.nextLink(ctx, to)
		if err != nil {
			return nil, err
		}
		out.Links = append(out.Links, message.Link{Relation: "next", URL: next})
	}
	return out.Answer(), nil
}

// outcome returns the entry that names the ignored parameters, if there are any.
func (s *plan) outcome() []message.Entry {
	if len(s.ignored) == 0 {
		return nil
	}
	text := `{"resourceType":"OperationOutcome","issue":[{"severity":"warning","code":"not-supported","diagnostics":` +
		message.Quoted("Unknown search parameters were ignored: "+strings.Join(s.ignored, ", ")+".") + `}]}`
	return []message.Entry{{Resource: []byte(text), Search: []byte(`{"mode":"outcome"}`)}}
}

// total is the total of a page: that of the FHIR server if it finds just what may be seen, which the pages that follow
// tell, too, until one of them hides a match, or what all pages have had if there are no more. -1 if none is known to be
// right.
func (s *plan) total(ctx context.Context, m *merge, from, to paging.Position) (int, error) {
	switch {
	case !s.judged:
		return m.told, nil
	case to.IsEnd() && !slices.ContainsFunc(to.Places, func(at paging.Place) bool { return at.Cut }):
		return to.Shown, nil
	case from.Total > 0 && (m.dropped == 0 || len(s.branches) > 1):
		return from.Total, nil
	case s.ruled || !from.IsStart():
		return -1, nil
	case len(s.branches) == 1 && m.dropped == 0 && s.isCountable():
		return m.told, nil
	case s.accurate:
		return s.counted(ctx)
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
func (s *plan) nextLink(ctx context.Context, at paging.Position) (string, error) {
	if !slices.ContainsFunc(at.Places, paging.Place.IsFirst) {
		return s.x.Pages.Seal(ctx, s.x.Pages.Begun(s.c, s.i, at))
	}
	return s.x.Pages.Seal(ctx, paging.AsSent(s.c, at))
}

// localized are the entries as clients are to see them. Of a judged one nothing is said but what it is: a score tells
// how common words are in all records.
func (s *plan) localized(entries []message.Entry) []message.Entry {
	if !s.judged {
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

// maxCounted is how many branches of one type may overlap for their matches to be counted, which takes a request for
// every set of them.
const maxCounted = 4

var errNoTotal = errors.New("the answer tells no total")

// isCountable reports whether the FHIR server finds just what may be seen. Of some types it finds more: the rest is
// dropped from answers, but it would be in a number.
func (s *plan) isCountable() bool {
	return !slices.ContainsFunc(s.branches, func(b branch) bool { return !b.whole && !s.x.Shared.IsCounted(b.resourceType) })
}

// mayHide reports whether the FHIR server may find matches that are withheld: those that policies deny, or records of
// other patients. A link to a page that has only these would reveal them, so each page ends with a look ahead.
func (s *plan) mayHide() bool { return s.judged && (s.ruled || !s.isCountable()) }

// counted is the number of matches, of which those that several branches find count once.
func (s *plan) counted(ctx context.Context) (int, error) {
	if s.nothing {
		return 0, nil
	}
	if s.ruled || s.judged && !s.isCountable() {
		return 0, message.Forbidden(message.ErrOracle, "The number of matches is not told under these scopes: some could be records of others.")
	}
	total := 0
	for rest := s.branches; len(rest) > 0; {
		n := 1
		for n < len(rest) && rest[n].resourceType == rest[0].resourceType {
			n++
		}
		of, err := s.union(ctx, rest[:n])
		if err != nil {
			return 0, err
		}
		total, rest = total+of, rest[n:]
	}
	return total, nil
}

// union counts what some branches of a type find, by inclusion and exclusion.
func (s *plan) union(ctx context.Context, branches []branch) (int, error) {
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
		n, err := s.countOf(ctx, both)
		if err != nil {
			return 0, err
		}
		total += sign * n
	}
	return max(total, 0), nil
}

// countOf asks the FHIR server how much a branch finds.
func (s *plan) countOf(ctx context.Context, b branch) (int, error) {
	parameters := slices.Concat(s.parameters, b.confining, []smart.Parameter{{Name: "_summary", Value: "count"}})
	a, err := s.x.Server.Ask(ctx, b.call(s.c.Method, parameters, 0))
	if err != nil {
		return 0, err
	}
	got, err := s.x.At.BundleOf(a, false, nil, s.said)
	switch {
	case err != nil:
		return 0, err
	case got.Total < 0:
		return 0, message.Withheld(errNoTotal)
	}
	return got.Total, nil
}
