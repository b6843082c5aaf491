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

// merge builds a page from the pages of the branches: one branch after the other, or in the order of _sort.
type merge struct {
	pages      *pages
	filter     *filter
	query      query
	disclosure disclosure
	size       int // matches per page; 0 leaves the size to the FHIR server
	branchSize int // matches requested per branch; 0 leaves the size to the FHIR server
	most       int // maximum number of pages to read from the FHIR server
	sources    []source
	postponed  bool // matches are left for the next page, because judging them could exceed the limit on requests
	dropped    int  // number of withheld matches and duplicates
	told       int  // total in the FHIR server's response for a single branch; -1 if none
	matches    []message.Entry
	others     []message.Entry // other entries on the pages with matches
}

// source is the state of a branch. Its next matches are taken from memory first, then from left, then from the next
// page.
type source struct {
	matches []message.Entry       // visible matches in memory that are not yet on a page
	others  []message.Entry       // the page's other entries, until one of its matches is used
	left    []string              // Type/id of matches that were read, but are no longer in memory
	next    paging.BranchPosition // next page of the FHIR server
	// before is the place of the page in memory, until one of its matches is used: the page can then be read again.
	before *paging.BranchPosition
}

// newMerge starts a search, or continues it at a position, which then has a place for each branch.
func newMerge(x *Searches, p plan, at paging.Position) *merge {
	size := pageSize(p.disclosure.judged, p.response.count)
	m := &merge{
		pages:  &pages{x: x, query: p.query, judged: p.disclosure.judged, overAll: isOverAll(p.interaction)},
		filter: &filter{x: x, branches: p.branches, remembers: p.along.includes != (includes{}), grants: grants{judge: x.Judge}},
		query:  p.query, disclosure: p.disclosure, size: size, branchSize: branchSize(size, p.response.count, len(p.branches), len(p.query.order) > 0),
		sources: make([]source, len(p.branches)), told: -1, most: x.mostRequests(),
	}
	for i := range m.sources {
		m.sources[i].next.Done = p.query.nothing
	}
	for i, p := range at.Branches {
		m.sources[i].left = p.Pending
		m.sources[i].next = paging.BranchPosition{Path: p.Path, Query: p.Query, Done: p.Done, MayBeIncomplete: p.MayBeIncomplete}
	}
	return m
}

// mostRequests returns the maximum number of requests to read the pages of the FHIR server for one page. The remaining
// requests are for resources that matches depend on and for included resources.
func (x *Searches) mostRequests() int {
	return max(min(x.Requests*3/4, x.Requests-x.Server.RequestCount()), 1)
}

// fill collects the matches of a page. Without a size, the page is as long as the FHIR server's.
func (m *merge) fill(ctx context.Context) error {
	m.matches = newEntries()
	for m.size == 0 || len(m.matches) < m.size {
		e, err := m.next(ctx)
		if err != nil {
			return err
		}
		if e == nil {
			break
		}
		m.matches = append(m.matches, *e)
	}
	if m.disclosure.mayHide() {
		return m.lookAhead(ctx)
	}
	return nil
}

// entries returns the matches of a page and the included entries.
func (m *merge) entries(ctx context.Context, along along) ([]message.Entry, error) {
	if err := m.fill(ctx); err != nil {
		return nil, err
	}
	if len(m.others) == 0 && len(along.referring) == 0 {
		return m.matches, nil
	}
	others, err := m.included(ctx, along)
	return append(m.matches, others...), err
}

// next removes the next match from its source. It returns nil if peek does.
func (m *merge) next(ctx context.Context) (*message.Entry, error) {
	first, err := m.peek(ctx, len(m.query.order) == 0)
	if first == nil || err != nil {
		return nil, err
	}
	e := &first.matches[0]
	m.others = append(m.others, first.others...)
	first.matches, first.others, first.before = first.matches[1:], nil, nil
	return e, nil
}

// lookAhead reads until a visible match follows the page, or all sources are exhausted. Matches left from earlier pages are
// visible, except for types that depend on other resources: they may have been postponed unjudged.
func (m *merge) lookAhead(ctx context.Context) error {
	for _, from := range m.sources {
		if len(from.matches) > 0 {
			return nil
		}
		if len(from.left) > 0 {
			if resourceType, _, _ := strings.Cut(from.left[0], "/"); !m.pages.x.Shared.Depends(resourceType) {
				return nil
			}
		}
	}
	_, err := m.peek(ctx, true)
	return err
}

// peek returns the source with the next match in the order of the search or, with firstFound, the first source that has a
// match. It returns nil if all sources are exhausted, or if the limits of a page forbid another request.
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
		if len(from.matches) > 0 && (first == nil || m.query.order.less(m.pages.x.Parameters, &from.matches[0], &first.matches[0])) {
			first = from
		}
		if first != nil && firstFound {
			break
		}
	}
	return first, nil
}

// mayFetch reports whether another page of the FHIR server may be read. A page without a size ends with the FHIR server's
// page, any other page also at the size limit in bytes.
func (m *merge) mayFetch() bool {
	return m.pages.fetched < m.most && !m.postponed && (len(m.matches) == 0 || m.size > 0 && m.pages.size < m.pages.x.Limit)
}

// fetch loads the next matches of a source: those left, or the next page.
func (m *merge) fetch(ctx context.Context, n int) error {
	from := &m.sources[n]
	from.others, from.before = nil, nil
	before := m.pages.mark()
	var err error
	if len(from.left) > 0 {
		err = m.fetchLeft(ctx, n)
	} else {
		err = m.fetchPage(ctx, n)
	}
	if err == nil && m.disclosure.judged && len(from.matches)+len(from.others) == 0 {
		m.pages.discard(before) // no entry is visible
	}
	return err
}

// fetchPage loads the next page of a source. A first page that may be truncated is requested again with a larger size.
func (m *merge) fetchPage(ctx context.Context, n int) error {
	from, b := &m.sources[n], m.filter.branches[n]
	parameters := slices.Concat(m.query.parameters, b.confining)
	for size := m.branchSize; ; size = min(2*size, maxCount) {
		got, next, err := m.pages.read(ctx, size, func(size int) message.Call { return b.call(m.query.method, parameters, size) }, from.next)
		if err != nil {
			return err
		}
		isCut := next.Done && got.Total < 0 && isFull(got, from.next, size)
		// A denied match can fill the last page, so the total must not depend on whether the page is full.
		next.MayBeIncomplete = isCut || m.disclosure.ruled && next.Done && got.Total < 0
		if isCut && m.disclosure.judged && from.next.IsFirst() && size < maxCount && m.pages.fetched+len(m.sources) <= m.most {
			continue
		}
		if before := from.next; !(before.IsFirst() && m.query.chained) {
			from.before = &before
		}
		m.told, from.next = got.Total, next
		return m.take(ctx, n, got.Entries)
	}
}

// branchSize returns the number of matches to request from a branch for a page of a size; 0 leaves it to the FHIR server.
// Sorted branches each contribute a part of a page. At least an eighth of the page bounds the number of requests per
// branch.
func branchSize(pageSize, count, branches int, sorted bool) int {
	size := max(cmp.Or(pageSize, min(count, maxCount)), 0)
	switch {
	case branches == 1 || pageSize == 0:
		return size
	case sorted:
		return max(min(size, (2*size+branches-1)/branches), (size+7)/8, minMerged)
	default:
		return max(size, minMerged)
	}
}

// isFull reports whether a page without a next link may not be the last: it has as many matches as requested, and no total.
// Some FHIR servers, such as HAPI, omit the link if duplicates fill the page. The requested number is in the page's own
// link or, for the first page, in the call.
func isFull(b *message.Bundle, at paging.BranchPosition, asked int) bool {
	query, _ := url.ParseQuery(at.Query)
	if n, err := strconv.Atoi(query.Get("_count")); err == nil {
		asked = n
	}
	matches, _ := parted(b.Entries)
	return asked > 0 && len(matches) == asked
}

// pages are pages of the FHIR server. Their buffers are kept until release.
type pages struct {
	x       *Searches
	query   query
	judged  bool // entries are parsed, and pages too long to be judged are requested again
	overAll bool // the client has named no types
	fetched int  // number of read pages
	size    int64
	held    []*message.ResponseBuffer
	lists   [][]message.Entry // lists of entries to return to the pool
}

// read requests a page with a number of matches from the FHIR server, by a call for the first page or by the page's own
// link, and returns the place of the next page. A page that is too long to be judged is requested again with half as many
// matches. The result is valid until release.
func (p *pages) read(ctx context.Context, size int, first func(size int) message.Call, at paging.BranchPosition) (*message.Bundle, paging.BranchPosition, error) {
	for {
		c, before := at.Call(first(size)), p.mark()
		a, err := p.hold(ctx, c)
		if errors.Is(err, message.ErrTooLong) {
			if at, size, err = shorter(at, size, err); err != nil {
				return nil, at, err
			}
			p.discard(before)
			continue
		}
		if err != nil {
			return nil, at, err
		}
		if at.IsFirst() && a.Status == http.StatusNotFound && p.overAll {
			return &message.Bundle{Total: -1}, paging.BranchPosition{Done: true}, nil // the FHIR server does not support the type
		}
		got, err := p.x.Addresses.BundleOf(a, p.judged, newEntries(), p.query.said)
		if err != nil {
			return nil, at, err
		}
		p.lists = append(p.lists, got.Entries)
		next, err := at.Next(got.Links, c)
		return got, next, err
	}
}

// hold sends a call to the FHIR server, and keeps its response.
func (p *pages) hold(ctx context.Context, c message.Call) (*message.Response, error) {
	p.fetched++
	held, err := p.x.Server.DoBuffered(ctx, c)
	p.held = append(p.held, held)
	if err != nil {
		return nil, err
	}
	p.size += int64(len(held.Response.Body))
	return &held.Response, nil
}

// mark is the number of kept responses and the reserved memory at a point in time.
type mark struct {
	answers  int
	reserved int64
}

func (p *pages) mark() mark { return mark{len(p.held), p.x.Server.MemoryInUse()} }

// discard releases the responses since a mark, which must be unused, and the memory reserved since then.
func (p *pages) discard(since mark) {
	for _, held := range p.held[since.answers:] {
		held.Release()
	}
	p.held = p.held[:since.answers]
	p.x.Server.ReleaseExcept(since.reserved, nil)
}

// shorter halves the number of matches of a page. Links of the FHIR server contain it as _count.
func shorter(at paging.BranchPosition, size int, tooLong error) (paging.BranchPosition, int, error) {
	if at.IsFirst() {
		if size == 1 {
			return at, size, tooLong
		}
		return at, cmp.Or(size/2, DefaultCount/2), nil
	}
	query, err := url.ParseQuery(at.Query)
	n, _ := strconv.Atoi(query.Get("_count"))
	if err != nil || n < 2 || query.Has("page") || query.Has("_page") {
		return at, size, tooLong // a single match, or a link with a start that depends on _count
	}
	query.Set("_count", strconv.Itoa(n/2))
	at.Query = query.Encode()
	return at, size, nil
}

// parted separates entries into matches and others.
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

// take sorts the entries of a page into their source. An OperationOutcome of the FHIR server may be about any resource, so
// judged pages omit it.
func (m *merge) take(ctx context.Context, n int, entries []message.Entry) error {
	from := &m.sources[n]
	if !m.disclosure.judged {
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
		if !m.filter.mayJudge(e.Parsed.Type) {
			from.left, m.postponed = append(from.left, e.Parsed.Type+"/"+e.Parsed.ID), true
			continue
		}
		ok, err := m.filter.keeps(ctx, e, n)
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

// mostLookUps is the maximum number of resources that a resource may depend on.
const mostLookUps = 20

// filter decides which matches are visible.
type filter struct {
	x         *Searches
	branches  []branch
	remembers bool // included entries may depend on the standing of matches
	grants    grants
	seen      map[interaction.Reference]bool // resources found so far, if there are several branches
}

// mayJudge reports whether a match of a type can be judged for this page. Other matches are left for the next page, because
// looking up the resources that they depend on could exceed the limit on requests.
func (f *filter) mayJudge(resourceType string) bool {
	return !f.x.Shared.Depends(resourceType) || f.x.Server.RequestCount()+mostLookUps <= f.x.Requests
}

// keeps reports whether a match of the n-th branch is visible and not a duplicate, of this branch or an earlier one.
// Matches outside of the branch are dropped.
func (f *filter) keeps(ctx context.Context, e *message.Entry, n int) (bool, error) {
	b, of := f.branches[n], interaction.Reference{Type: e.Parsed.Type, ID: e.Parsed.ID}
	if b.resourceType != "" && b.resourceType != smart.AnyType && b.resourceType != e.Parsed.Type || f.seen[of] {
		return false, nil
	}
	for _, earlier := range f.branches[:n] {
		if earlier.finds(f.x.Judge.Rights(), e.Parsed) {
			return false, nil
		}
	}
	grants := f.grants.of(e.Parsed.Type, smart.Search)
	ok, err := f.x.Judge.IsCovered(ctx, e.Parsed, grants)
	if ok && f.remembers {
		f.x.Judge.CacheStanding(e.Parsed, grants)
	}
	if ok && len(f.branches) > 1 {
		if f.seen == nil {
			f.seen = map[interaction.Reference]bool{}
		}
		f.seen[of] = true
	}
	return ok, err
}

// release returns the pages' buffers, to which all entries point, and the lists of entries to their pools.
func (p *pages) release(lists ...[]message.Entry) {
	for _, list := range append(p.lists, lists...) {
		if clear(list); cap(list) <= mostEntries {
			list = list[:0]
			entryLists.Put(&list)
		}
	}
	for _, held := range p.held {
		held.Release()
	}
}

// maxGet is the maximum number of ids in a search by GET, which keeps its URL below 2,000 characters. Longer searches use
// POST.
const maxGet = 40

// searchByIDs returns a search with a number of ids; its argument is the page size.
func searchByIDs(method, resourceType string, parameters []smart.Parameter, ids int) func(size int) message.Call {
	if ids > maxGet {
		method = http.MethodPost
	}
	return func(size int) message.Call { return branch{resourceType: resourceType}.call(method, parameters, size) }
}

// fetchLeft loads the first matches left of a source, as many as fit on a page, by one search. They are judged like all
// matches; deleted resources are omitted.
func (m *merge) fetchLeft(ctx context.Context, n int) error {
	from := &m.sources[n]
	resourceType, _, _ := strings.Cut(from.left[0], "/")
	var ids []string
	for _, reference := range from.left[:min(len(from.left), max(m.size, minMerged))] {
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

// find returns resources of a type by their ids, and the included entries.
func (m *merge) find(ctx context.Context, resourceType string, ids []string) (found map[string]message.Entry, others []message.Entry, err error) {
	parameters := slices.DeleteFunc(slices.Clone(m.query.parameters), func(p smart.Parameter) bool { return !paging.IsForResults(p) })
	parameters = append(parameters, smart.Parameter{Name: "_id", Value: strings.Join(ids, ",")})
	first := searchByIDs(m.query.method, resourceType, parameters, len(ids))
	found = map[string]message.Entry{}
	for at := (paging.BranchPosition{}); !at.Done; {
		got, next, err := m.pages.read(ctx, len(ids), first, at)
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
