package search

import (
	"context"
	"errors"
	"slices"

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
	if i.Kind == interaction.SystemSearch {
		self = x.At.URL("", smart.EncodeParameters(s.asked))
	}
	if s.onlyTotal {
		return s.countAlone(ctx, self)
	}
	return s.page(ctx, s.start(), self)
}

// PageAt answers a link to a page.
func (x *Searches) PageAt(ctx context.Context, c message.Call, i interaction.Interaction, at paging.Position, self string) (*message.Answer, error) {
	s, err := newPlan(ctx, x, x.each, c, i)
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

// page answers with the matches from a position on. A page gets shorter if its link to the next one would be too long,
// or, where the FHIR server heeds no _count, as long as the server's.
func (s *plan) page(ctx context.Context, from paging.Position, self string) (*message.Answer, error) {
	for {
		a, err := s.pageOf(ctx, from, self)
		switch {
		case !errors.Is(err, paging.ErrLongLink):
			return a, err
		case s.size > 1:
			s.size, s.short = s.size/2, true
			s.count = s.size
		case len(s.branches) == 1 && s.count > 0:
			s.size, s.count = 0, -1
		default:
			return a, err
		}
	}
}

func (s *plan) pageOf(ctx context.Context, from paging.Position, self string) (*message.Answer, error) {
	m, err := newMerge(s, from)
	if err != nil {
		return nil, err
	}
	defer m.release()
	if m.resumes {
		err = m.resume(ctx, from)
	}
	if err == nil {
		err = m.fill(ctx)
	}
	if err != nil {
		return nil, err
	}
	entries := m.matches
	if len(m.others) > 0 || len(s.referring) > 0 {
		others, err := m.included(ctx)
		if err != nil {
			return nil, err
		}
		entries = append(entries, others...)
	}
	to := m.position(from)
	out := &message.Bundle{Kind: "searchset", Entries: s.localized(entries)}
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

// total is the total of a page: that of the FHIR server if it finds just what may be seen, which the pages that follow
// tell, too, until one of them hides a match, or what all pages have had if there are no more. -1 if none is known to be
// right.
func (s *plan) total(ctx context.Context, m *merge, from, to paging.Position) (int, error) {
	switch {
	case !s.judged:
		return m.told, nil
	case to.IsWhole():
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

// position is the one behind the page: what was read and is not on it is named, since no page is read twice.
func (m *merge) position(from paging.Position) paging.Position {
	to := paging.Position{Shown: from.Shown + len(m.matches), Total: from.Total}
	for _, source := range m.sources {
		at := source.next
		for _, rest := range source.matches {
			at.Left = append(at.Left, rest.Parsed.Type+"/"+rest.Parsed.ID)
		}
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
