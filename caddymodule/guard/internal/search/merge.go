package search

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/paging"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// merge makes pages of the branches' pages: one branch after the other, or in the order that the client asked for.
type merge struct {
	s       *plan
	sources []source
	resumes bool // the page before has read matches that it has not shown
	most    int  // pages of the FHIR server that may be read
	fetched int
	dropped int // matches that may not be seen, or that an earlier branch has found
	told    int // the FHIR server's total, of one branch; -1 if it tells none
	matches []message.Entry
	others  []message.Entry // the other entries of the pages of which matches were taken
	held    []*message.Held
	lists   [][]message.Entry              // of entries, that are given back
	seen    map[interaction.Reference]bool // that were found, if there are several branches
}

// source is a branch as far as it is read.
type source struct {
	next    paging.Place    // the page behind the matches
	matches []message.Entry // that were read, may be seen, and were not taken
	others  []message.Entry // of the page, as long as none of its matches was taken
}

// newMerge begins a search, or continues it at a position, which then has a place for each branch.
func newMerge(s *plan, at paging.Position) *merge {
	m := &merge{s: s, sources: make([]source, len(s.branches)), told: -1, most: paging.MaxFetches + len(s.branches)}
	if len(s.order) == 0 { // one branch after the other: the rest is for further pages
		m.most = max(min(m.most, s.x.Requests*3/4), 1)
	}
	for i := range m.sources {
		m.sources[i].next.Done = s.nothing
	}
	for i, p := range at.Places {
		m.resumes = m.resumes || len(p.Left) > 0
		m.sources[i].next = paging.Place{Path: p.Path, Query: p.Query, Done: p.Done, Cut: p.Cut}
	}
	return m
}

// fill takes matches for a page, and what comes along. Without a size a page is as long as the FHIR server's.
func (m *merge) fill(ctx context.Context) ([]message.Entry, error) {
	m.matches = newEntries()
	for m.s.size == 0 || len(m.matches) < m.s.size {
		e, err := m.next(ctx)
		if err != nil {
			return nil, err
		}
		if e == nil {
			break
		}
		m.matches = append(m.matches, *e)
	}
	if len(m.others) == 0 && len(m.s.referring) == 0 {
		return m.matches, nil
	}
	others, err := m.included(ctx)
	return append(m.matches, others...), err
}

// next takes the match that is next. None: all sources are at their ends, or enough was asked of the FHIR server for one
// page, which ends with the server's where it decides on the length.
func (m *merge) next(ctx context.Context) (*message.Entry, error) {
	var first *source
	for n := range m.sources {
		from := &m.sources[n]
		for len(from.matches) == 0 && !from.next.Done {
			if m.fetched >= m.most || m.s.size == 0 && m.fetched > 0 && len(m.matches) > 0 {
				return nil, nil
			}
			if err := m.fetch(ctx, n); err != nil {
				return nil, err
			}
		}
		if len(from.matches) > 0 && (first == nil || m.s.less(&from.matches[0], &first.matches[0])) {
			first = from
		}
		if first != nil && len(m.s.order) == 0 {
			break
		}
	}
	if first == nil {
		return nil, nil
	}
	e := &first.matches[0]
	m.others = append(m.others, first.others...)
	first.matches, first.others = first.matches[1:], nil
	return e, nil
}

// fetch loads the next page of a source. A first page that may have been cut is asked for again, longer.
func (m *merge) fetch(ctx context.Context, n int) error {
	from, b := &m.sources[n], m.s.branches[n]
	parameters := slices.Concat(m.s.parameters, b.confining)
	size := cmp.Or(m.s.size, min(m.s.count, maxCount))
	if len(m.s.branches) > 1 {
		size = max(size, minMerged)
	}
	for size = max(size, 0); ; size = min(2*size, maxCount) {
		got, next, err := m.page(ctx, b.call(m.s.c.Method, parameters, size), from.next)
		if err != nil {
			return err
		}
		m.fetched++
		next.Cut = next.Done && got.Total < 0 && isFull(got, from.next, size)
		if next.Cut && m.s.judged && from.next.IsFirst() && size < maxCount && m.fetched < m.most {
			continue
		}
		m.told, from.next = got.Total, next
		return m.take(ctx, n, got.Entries)
	}
}

// isFull reports whether a page without a link to a next one may not be the last, since it has as many matches as were
// asked for and tells no total: some servers, HAPI among them, lose the link where duplicates have filled the page. How
// many were asked for says its own link, or else the call for the first page.
func isFull(b *message.Bundle, at paging.Place, asked int) bool {
	query, _ := url.ParseQuery(at.Query)
	if n, err := strconv.Atoi(query.Get("_count")); err == nil {
		asked = n
	}
	matches, _ := parted(b.Entries)
	return asked > 0 && len(matches) == asked
}

// page asks the FHIR server for a page of what a call finds, and tells where the next one is. It is of use until the
// merge is released.
func (m *merge) page(ctx context.Context, first message.Call, at paging.Place) (*message.Bundle, paging.Place, error) {
	c := at.Call(first)
	held, err := m.s.x.Server.Hold(ctx, c)
	m.held = append(m.held, held)
	if err != nil {
		return nil, at, err
	}
	a := &held.Answer
	if at.IsFirst() && a.Status == http.StatusNotFound && m.s.isOverAll() {
		return &message.Bundle{Total: -1}, paging.Place{Done: true}, nil // a type that the server does not have
	}
	got, err := m.s.x.At.BundleOf(a, m.s.judged, newEntries(), m.s.said)
	if err != nil {
		return nil, at, err
	}
	m.lists = append(m.lists, got.Entries)
	next, err := at.Next(got.Links, c)
	return got, next, err
}

// parted are the matches among entries, and the other ones.
func parted(entries []message.Entry) (matches, others []message.Entry) {
	for _, e := range entries {
		if e.Mode == "include" || e.Mode == "outcome" {
			others = append(others, e)
		} else {
			matches = append(matches, e)
		}
	}
	return matches, others
}

// take sorts the entries of a page. What the FHIR server has to say about a search may be about any resource, so it is
// left out of what is judged.
func (m *merge) take(ctx context.Context, n int, entries []message.Entry) error {
	from := &m.sources[n]
	if from.others = nil; !m.s.judged {
		var others []message.Entry
		from.matches, others = parted(entries)
		m.others = append(m.others, others...)
		return nil
	}
	from.matches = entries[:0]
	for i := range entries {
		e := &entries[i]
		if e.Mode == "include" {
			from.others = append(from.others, *e)
		}
		if e.Mode == "include" || e.Mode == "outcome" {
			continue
		}
		ok, err := m.keeps(ctx, e, n)
		if err != nil {
			return err
		}
		if !ok {
			m.dropped++
			continue
		}
		from.matches = append(from.matches, *e)
	}
	return nil
}

// keeps reports whether a match of a branch may be seen, and has not been found before, nor by an earlier branch. What
// the FHIR server finds beyond the branch is dropped.
func (m *merge) keeps(ctx context.Context, e *message.Entry, n int) (bool, error) {
	b, of := m.s.branches[n], interaction.Reference{Type: e.Parsed.Type, ID: e.Parsed.ID}
	if b.resourceType != "" && b.resourceType != smart.AnyType && b.resourceType != e.Parsed.Type || m.seen[of] {
		return false, nil
	}
	for _, earlier := range m.s.branches[:n] {
		if earlier.finds(m.s.x.Judge.Rights(), e.Parsed) {
			return false, nil
		}
	}
	grants := m.s.grantsFor(e.Parsed.Type, smart.Search)
	ok, err := m.s.x.Judge.Covered(ctx, e.Parsed, grants)
	if ok && m.s.includes != (includes{}) {
		m.s.x.Judge.Remember(e.Parsed, grants)
	}
	if ok && len(m.sources) > 1 {
		if m.seen == nil {
			m.seen = map[interaction.Reference]bool{}
		}
		m.seen[of] = true
	}
	return ok, err
}

// release gives back what the pages arrived in, of which all entries are parts, and the entries.
func (m *merge) release() {
	for _, list := range append(m.lists, m.matches) {
		if clear(list); cap(list) <= mostEntries {
			list = list[:0]
			entryLists.Put(&list)
		}
	}
	for _, held := range m.held {
		held.Release()
	}
}

// resume loads the matches that the page before has read and not shown, by one search for those of each type. They are
// judged as all else; what is not there any more is left out.
func (m *merge) resume(ctx context.Context, at paging.Position) error {
	ids := map[string][]string{}
	for _, p := range at.Places {
		for _, reference := range p.Left {
			resourceType, id, _ := strings.Cut(reference, "/")
			ids[resourceType] = append(ids[resourceType], id)
		}
	}
	found := map[string]message.Entry{}
	for resourceType, of := range ids {
		if err := m.find(ctx, resourceType, of, found); err != nil {
			return err
		}
	}
	for n, p := range at.Places {
		var left []message.Entry
		for _, reference := range p.Left {
			if e, ok := found[reference]; ok {
				left = append(left, e)
			}
		}
		if err := m.take(ctx, n, left); err != nil {
			return err
		}
	}
	return nil
}

// find finds resources of a type by their ids, with what comes along.
func (m *merge) find(ctx context.Context, resourceType string, ids []string, found map[string]message.Entry) error {
	parameters := slices.DeleteFunc(slices.Clone(m.s.parameters), func(p smart.Parameter) bool { return !paging.IsForResults(p) })
	parameters = append(parameters, smart.Parameter{Name: "_id", Value: strings.Join(ids, ",")})
	c := branch{resourceType: resourceType}.call(m.s.c.Method, parameters, len(ids))
	for at := (paging.Place{}); !at.Done; {
		got, next, err := m.page(ctx, c, at)
		if err != nil {
			return err
		}
		matches, others := parted(got.Entries)
		for _, e := range matches {
			found[e.Parsed.Type+"/"+e.Parsed.ID] = e
		}
		m.others, at = append(m.others, others...), next
	}
	return nil
}
