package search

import (
	"cmp"
	"context"
	"errors"
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
	s         *plan
	sources   []source
	most      int   // pages of the FHIR server that may be read
	fetched   int   // pages of the FHIR server that were read
	size      int64 // of these, in bytes
	postponed bool  // matches are left for the next page because judging them could take too many requests
	dropped   int   // matches that may not be seen, or that an earlier branch has found
	told      int   // total of the FHIR server's response for one branch; -1 if it has none
	matches   []message.Entry
	others    []message.Entry // the other entries of the pages of which matches were taken
	held      []*message.Held
	lists     [][]message.Entry              // of entries, that are given back
	seen      map[interaction.Reference]bool // that were found, if there are several branches
}

// source is a branch as far as it is read: its matches are those in memory, then those left, then those of the next page.
type source struct {
	matches []message.Entry // that were read, may be seen, and were not taken
	others  []message.Entry // of the page, as long as none of its matches was taken
	left    []string        // Type/id of matches that were read for this page or an earlier one, and are not in memory
	next    paging.Place    // the page behind these
	// before is the page in memory, if none of its matches was taken: it can be read again.
	before *paging.Place
}

// newMerge begins a search, or continues it at a position, which then has a place for each branch.
func newMerge(s *plan, at paging.Position) *merge {
	m := &merge{s: s, sources: make([]source, len(s.branches)), told: -1, most: s.mostRequests()}
	for i := range m.sources {
		m.sources[i].next.Done = s.nothing
	}
	for i, p := range at.Places {
		m.sources[i].left = p.Left
		m.sources[i].next = paging.Place{Path: p.Path, Query: p.Query, Done: p.Done, Cut: p.Cut}
	}
	return m
}

// mostRequests is how many requests to the FHIR server may be sent to read the pages for one page of ours. The rest is for
// what matches depend on and what comes along.
func (s *plan) mostRequests() int {
	return max(min(s.x.Requests*3/4, s.x.Requests-s.x.Server.Asked()), 1)
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
	if m.s.mayHide() {
		if err := m.lookAhead(ctx); err != nil {
			return nil, err
		}
	}
	if len(m.others) == 0 && len(m.s.referring) == 0 {
		return m.matches, nil
	}
	others, err := m.included(ctx)
	return append(m.matches, others...), err
}

// next removes the next match from its source. It returns nil if peek does.
func (m *merge) next(ctx context.Context) (*message.Entry, error) {
	first, err := m.peek(ctx, len(m.s.order) == 0)
	if first == nil || err != nil {
		return nil, err
	}
	e := &first.matches[0]
	m.others = append(m.others, first.others...)
	first.matches, first.others, first.before = first.matches[1:], nil, nil
	return e, nil
}

// lookAhead reads until a visible match follows the page, or all sources are exhausted. Matches that were left are visible
// already, except those of types that depend on other resources: these may have been postponed without being judged.
func (m *merge) lookAhead(ctx context.Context) error {
	for _, from := range m.sources {
		if len(from.matches) > 0 {
			return nil
		}
		if len(from.left) > 0 {
			if resourceType, _, _ := strings.Cut(from.left[0], "/"); !m.s.x.Shared.Depends(resourceType) {
				return nil
			}
		}
	}
	_, err := m.peek(ctx, true)
	return err
}

// peek returns the source with the next match in the order of the search, or the first source that has a match. It returns
// nil if all sources are exhausted, or if the limits of one page forbid another request.
func (m *merge) peek(ctx context.Context, firstFound bool) (*source, error) {
	var first *source
	for n := range m.sources {
		from := &m.sources[n]
		for len(from.matches) == 0 && (len(from.left) > 0 || !from.next.Done) {
			if !m.mayFetch() {
				return nil, nil
			}
			if err := m.fetch(ctx, n); err != nil {
				return nil, err
			}
		}
		if len(from.matches) > 0 && (first == nil || m.s.less(&from.matches[0], &first.matches[0])) {
			first = from
		}
		if first != nil && firstFound {
			break
		}
	}
	return first, nil
}

// mayFetch reports whether another page of the FHIR server may be read. A page of ours ends when it has enough bytes, and
// with the server's page where that decides on the length.
func (m *merge) mayFetch() bool {
	return m.fetched < m.most && !m.postponed && (len(m.matches) == 0 || m.s.size > 0 && m.size < m.s.x.Limit)
}

// fetch loads the next matches of a source: those left, or the next page.
func (m *merge) fetch(ctx context.Context, n int) error {
	from := &m.sources[n]
	from.others, from.before = nil, nil
	answers, held := len(m.held), m.s.x.Server.Held()
	var err error
	if len(from.left) > 0 {
		err = m.fetchLeft(ctx, n)
	} else {
		err = m.fetchPage(ctx, n)
	}
	if err == nil && m.s.judged && len(from.matches)+len(from.others) == 0 {
		m.discard(answers, held) // nothing on it may be seen
	}
	return err
}

// fetchPage loads the next page of a source. A first page that may have been cut is asked for again, longer.
func (m *merge) fetchPage(ctx context.Context, n int) error {
	from, b := &m.sources[n], m.s.branches[n]
	parameters := slices.Concat(m.s.parameters, b.confining)
	for size := m.s.branchSize(); ; size = min(2*size, maxCount) {
		got, next, err := m.page(ctx, size, func(size int) message.Call { return b.call(m.s.c.Method, parameters, size) }, from.next)
		if err != nil {
			return err
		}
		isCut := next.Done && got.Total < 0 && isFull(got, from.next, size)
		// A denied match can fill the last page: whether it is full must not decide whether the total is shown.
		next.Cut = isCut || m.s.ruled && next.Done && got.Total < 0
		if isCut && m.s.judged && from.next.IsFirst() && size < maxCount && m.fetched+len(m.sources) <= m.most {
			continue
		}
		if before := from.next; !(before.IsFirst() && m.s.chained) {
			from.before = &before
		}
		m.told, from.next = got.Total, next
		return m.take(ctx, n, got.Entries)
	}
}

// branchSize is how many matches a branch is asked for; 0 leaves it to the FHIR server. Where branches are merged, a page
// of ours takes a part of each branch's page. The eighth bounds the pages that it takes of one branch.
func (s *plan) branchSize() int {
	size := max(cmp.Or(s.size, min(s.count, maxCount)), 0)
	switch n := len(s.branches); {
	case n == 1 || s.size == 0:
		return size
	case len(s.order) > 0:
		return max(min(size, (2*size+n-1)/n), (size+7)/8, minMerged)
	default:
		return max(size, minMerged)
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

// page asks the FHIR server for a page of so many matches, by a call for the first page or by its own link, and returns
// where the next one is. A page that is too long to be judged is asked for again, with half as many. What is returned is of
// use until the merge is released.
func (m *merge) page(ctx context.Context, size int, first func(size int) message.Call, at paging.Place) (*message.Bundle, paging.Place, error) {
	for {
		c, before, held := at.Call(first(size)), len(m.held), m.s.x.Server.Held()
		a, err := m.hold(ctx, c)
		if errors.Is(err, message.ErrTooLong) {
			if at, size, err = shorter(at, size, err); err != nil {
				return nil, at, err
			}
			m.discard(before, held)
			continue
		}
		if err != nil {
			return nil, at, err
		}
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
}

// hold has the FHIR server answer a call.
func (m *merge) hold(ctx context.Context, c message.Call) (*message.Answer, error) {
	m.fetched++
	held, err := m.s.x.Server.Hold(ctx, c)
	m.held = append(m.held, held)
	if err != nil {
		return nil, err
	}
	m.size += int64(len(held.Answer.Body))
	return &held.Answer, nil
}

// shorter halves the number of matches of a page. The FHIR server's own links have it as _count.
func shorter(at paging.Place, size int, tooLong error) (paging.Place, int, error) {
	if at.IsFirst() {
		if size == 1 {
			return at, size, tooLong
		}
		return at, cmp.Or(size/2, DefaultCount/2), nil
	}
	query, err := url.ParseQuery(at.Query)
	n, _ := strconv.Atoi(query.Get("_count"))
	if err != nil || n < 2 || query.Has("page") || query.Has("_page") {
		return at, size, tooLong // it has one match, or starts elsewhere if it has fewer
	}
	query.Set("_count", strconv.Itoa(n/2))
	at.Query = query.Encode()
	return at, size, nil
}

// discard releases the answers from the n-th on, of which nothing is in use, and the memory reserved since then.
func (m *merge) discard(n int, reserved int64) {
	for _, held := range m.held[n:] {
		held.Release()
	}
	m.held = m.held[:n]
	m.s.x.Server.Keep(reserved, nil)
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
	if !m.s.judged {
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
		if !m.mayJudge(e.Parsed.Type) {
			from.left, m.postponed = append(from.left, e.Parsed.Type+"/"+e.Parsed.ID), true
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

// mostLookUps is how many others a resource may depend on.
const mostLookUps = 20

// mayJudge reports whether a match of a type can be judged for this page. Others are left for the next one, because to look
// up what they depend on could exceed the limit on requests.
func (m *merge) mayJudge(resourceType string) bool {
	return !m.s.x.Shared.Depends(resourceType) || m.s.x.Server.Asked()+mostLookUps <= m.s.x.Requests
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

// maxGet is how many ids a search by GET has, so that its URL stays below 2,000 characters. Longer ones are sent by POST.
const maxGet = 40

// searchByIDs returns a search with so many ids, for a number of matches.
func searchByIDs(method, resourceType string, parameters []smart.Parameter, ids int) func(size int) message.Call {
	if ids > maxGet {
		method = http.MethodPost
	}
	return func(size int) message.Call { return branch{resourceType: resourceType}.call(method, parameters, size) }
}

// fetchLeft loads the first of the matches that are left of a source, as many as a page can take, by one search. They are
// judged as all else; what is not there any more is left out.
func (m *merge) fetchLeft(ctx context.Context, n int) error {
	from := &m.sources[n]
	resourceType, _, _ := strings.Cut(from.left[0], "/")
	var ids []string
	for _, reference := range from.left[:min(len(from.left), max(m.s.size, minMerged))] {
		of, id, _ := strings.Cut(reference, "/")
		if of != resourceType {
			break
		}
		ids = append(ids, id)
	}
	wanted, rest := from.left[:len(ids)], from.left[len(ids):]
	found, others, err := m.find(ctx, resourceType, ids)
	if err != nil {
		return err
	}
	var entries []message.Entry
	for _, reference := range wanted {
		if e, ok := found[reference]; ok {
			entries = append(entries, e)
		}
	}
	from.others, from.left = others, nil
	err = m.take(ctx, n, entries)
	from.left = slices.Concat(from.left, rest)
	return err
}

// find finds resources of a type by their ids, and what comes along.
func (m *merge) find(ctx context.Context, resourceType string, ids []string) (found map[string]message.Entry, others []message.Entry, err error) {
	parameters := slices.DeleteFunc(slices.Clone(m.s.parameters), func(p smart.Parameter) bool { return !paging.IsForResults(p) })
	parameters = append(parameters, smart.Parameter{Name: "_id", Value: strings.Join(ids, ",")})
	first := searchByIDs(m.s.c.Method, resourceType, parameters, len(ids))
	found = map[string]message.Entry{}
	for at := (paging.Place{}); !at.Done; {
		got, next, err := m.page(ctx, len(ids), first, at)
		if err != nil {
			return nil, nil, err
		}
		matches, more := parted(got.Entries)
		for _, e := range matches {
			found[e.Parsed.Type+"/"+e.Parsed.ID] = e
		}
		others, at = append(others, more...), next
	}
	return found, slices.DeleteFunc(others, func(e message.Entry) bool { return e.Mode == "outcome" }), nil
}
