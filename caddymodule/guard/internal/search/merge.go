package search

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/paging"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// start is the position before the first page.
func (s *search) start() paging.Position {
	at := paging.Position{Places: make([]paging.Place, len(s.branches))}
	for i := range at.Places {
		at.Places[i].Done = s.nothing
	}
	return at
}

// merge makes pages of the branches' pages: one branch after the other, or in the order that the client asked for.
type merge struct {
	s       *search
	sources []source
	most    int // pages of the FHIR server that may be read
	fetched int
	dropped int // matches that may not be seen, or that an earlier branch has found
	told    int // the FHIR server's total, of one branch; -1 if it tells none
	matches []message.Entry
	others  []message.Entry // the other entries of the pages that were read
	held    []*message.Held
	lists   [][]message.Entry              // of entries, that are given back
	seen    map[interaction.Reference]bool // that are on the page, if there are several branches
}

// source is a branch as far as it is read.
type source struct {
	next    paging.Place    // the page behind the matches
	matches []message.Entry // that were read and not shown
	head    *message.Entry  // the first of them, if it may be seen
	others  []message.Entry
	used    bool // some matches of the page are on ours
}

// merged continues a search at a position.
func (s *search) merged(ctx context.Context, at paging.Position) (*merge, error) {
	if len(at.Places) != len(s.branches) {
		return nil, message.NotFound()
	}
	m := &merge{s: s, sources: make([]source, len(s.branches)), told: -1, most: paging.MaxFetches + len(s.branches)}
	if len(s.order) == 0 { // one branch after the other: the rest is for further pages
		m.most = max(min(m.most, s.x.Requests*3/4), 1)
	}
	for i, p := range at.Places {
		m.sources[i].next = paging.Place{Path: p.Path, Query: p.Query, Done: p.Done, Cut: p.Cut}
	}
	return m, m.resume(ctx, at)
}

// fill takes matches for a page of a size. Without a size a page is as long as the FHIR server's.
func (m *merge) fill(ctx context.Context, size int) error {
	m.matches = message.NewEntries()
	for size == 0 || len(m.matches) < size {
		from, err := m.least(ctx)
		if err != nil || from == nil {
			return err
		}
		m.matches = append(m.matches, from.take())
	}
	return nil
}

// take takes the head of a source.
func (from *source) take() message.Entry {
	e := *from.head
	from.head, from.used, from.matches = nil, true, from.matches[1:]
	return e
}

// least is the source whose head is next. None: all are at their ends, or enough was asked of the FHIR server.
func (m *merge) least(ctx context.Context) (*source, error) {
	var first *source
	for i := range m.sources {
		from := &m.sources[i]
		if ok, err := m.load(ctx, i); err != nil || !ok {
			return nil, err
		}
		switch {
		case from.head == nil:
		case len(m.s.order) == 0:
			return from, nil
		case first == nil || m.s.less(from.head, first.head):
			first = from
		}
	}
	return first, nil
}

// load finds the head of a source, unless it is at its end. It reports whether it could: not if too much was asked for
// one page, nor at the end of a page whose length the FHIR server decides.
func (m *merge) load(ctx context.Context, n int) (bool, error) {
	from := &m.sources[n]
	for {
		if err := m.advance(ctx, n); err != nil || from.head != nil || from.next.Done {
			return true, err
		}
		if m.isEnough() {
			return false, nil
		}
		if err := m.fetch(ctx, n); err != nil {
			return false, err
		}
	}
}

// isEnough reports whether no more is asked of the FHIR server for this page.
func (m *merge) isEnough() bool {
	return m.fetched >= m.most || m.s.pageSize() == 0 && m.fetched > 0 && len(m.matches) > 0
}

// fetch loads the next page of a source. A first page that may have been cut is asked for again, longer.
func (m *merge) fetch(ctx context.Context, n int) error {
	from := m.sources[n].next
	for size := m.s.branchSize(); ; size = min(2*size, maxCount) {
		got, next, err := m.page(ctx, m.s.branchCall(n, size), from)
		if err != nil {
			return err
		}
		m.fetched++
		matches, others := parted(got, m.s.judged)
		next.Cut = next.Done && isCut(got, len(matches), sizeOf(from, size))
		if next.Cut && m.s.judged && from.IsFirst() && size < maxCount && m.fetched < m.most {
			continue
		}
		m.told = got.Total
		m.others = append(m.others, m.sources[n].along(m.s.judged)...)
		m.sources[n] = source{next: next, matches: matches, others: others}
		return nil
	}
}

// sizeOf is how many matches a page has at most: what its link says, or else what the first page was asked for.
func sizeOf(p paging.Place, asked int) int {
	query, _ := url.ParseQuery(p.Query)
	if n, err := strconv.Atoi(query.Get("_count")); err == nil {
		return n
	}
	return asked
}

// page asks the FHIR server for a page of what a call finds, and tells where the next one is. It is of use until the
// merge is released.
func (m *merge) page(ctx context.Context, first message.Call, at paging.Place) (*message.Bundle, paging.Place, error) {
	c := message.Get(at.Path, at.Query)
	if at.IsFirst() {
		c = first
	}
	held, err := m.s.x.Server.Hold(ctx, c)
	m.held = append(m.held, held)
	if err != nil {
		return nil, at, err
	}
	if at.IsFirst() && held.Answer().Status == http.StatusNotFound && m.s.isOverAll() {
		return &message.Bundle{Total: -1}, paging.Place{Done: true}, nil // a type that the server does not have
	}
	got, err := m.s.x.At.BundleOf(held.Answer(), m.s.judged, message.Said{}.Parameters(m.s.i.Parameters))
	if err != nil {
		return nil, at, err
	}
	m.lists = append(m.lists, got.Entries)
	next := got.Links.To("next")
	if next == "" {
		return got, paging.Place{Done: true}, nil
	}
	to, err := paging.Local(next, got.Links.To("self"), strings.TrimSuffix(strings.TrimSuffix(c.Path, "_search"), "/"), at)
	return got, to, err
}

// release gives back what the pages arrived in, of which all entries are parts, and the entries.
func (m *merge) release() {
	for _, list := range append(m.lists, m.matches) {
		message.GiveBackEntries(list)
	}
	for _, held := range m.held {
		held.Release()
	}
}

// parted are the matches of a Bundle and its other entries. What the FHIR server has to say about a search may be about
// any resource, so it is left out of what is judged.
func parted(b *message.Bundle, judged bool) (matches, others []message.Entry) {
	isOther := func(e message.Entry) bool { return e.Mode == "include" || e.Mode == "outcome" }
	if !slices.ContainsFunc(b.Entries, isOther) {
		return b.Entries, nil
	}
	for _, e := range b.Entries {
		switch {
		case !isOther(e):
			matches = append(matches, e)
		case e.Mode == "include" || !judged:
			others = append(others, e)
		}
	}
	return matches, others
}

// advance finds the next match of a loaded page.
func (m *merge) advance(ctx context.Context, n int) error {
	from := &m.sources[n]
	for from.head == nil && len(from.matches) > 0 {
		e := &from.matches[0]
		ok, err := m.keeps(ctx, e, n)
		switch {
		case err != nil:
			return err
		case ok:
			from.head = e
		default:
			m.dropped++
			from.matches = from.matches[1:]
		}
	}
	return nil
}

// keeps reports whether a match is to be on a page, on which it is not yet.
func (m *merge) keeps(ctx context.Context, e *message.Entry, n int) (bool, error) {
	of := interaction.Reference{Type: e.Parsed.Type, ID: e.Parsed.ID}
	switch {
	case !m.s.judged:
		return true, nil
	case len(m.sources) == 1:
		return m.s.keeps(ctx, e, n)
	case m.seen[of]:
		return false, nil
	}
	ok, err := m.s.keeps(ctx, e, n)
	if ok && m.seen == nil {
		m.seen = map[interaction.Reference]bool{}
	}
	if ok {
		m.seen[of] = true
	}
	return ok, err
}

// along are the entries that come along with the matches that were taken from the loaded page.
func (from *source) along(judged bool) []message.Entry {
	if judged && !from.used {
		return nil
	}
	return from.others
}
