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

// merger builds a page from the pages of the branches: one branch after the other, or in the order of _sort.
type merger struct {
	pages        *pageReader
	matchFilter  *matchFilter
	query        query
	disclosure   disclosure
	pageSize     int // matches per page; 0: determined by the FHIR server
	branchSize   int // matches requested per branch; 0: determined by the FHIR server
	maxPages     int // maximum number of pages to read from the FHIR server
	sources      []branchState
	hasPostponed bool // matches were left for the next page, because judging them could exceed the limit on requests
	droppedCount int  // number of withheld matches and duplicates
	serverTotal  int  // total in the latest page, -1 if the FHIR server reports none; meaningful only with a single branch
	matches      []message.Entry
	nonMatches   []message.Entry // entries other than matches on the pages that contain matches
}

// branchState is the state of a branch. The next matches are taken from matches, then loaded from pendingIDs, then from the
// next page.
type branchState struct {
	matches    []message.Entry       // visible matches that are not on a page yet
	nonMatches []message.Entry       // the current page's other entries, until one of its matches is used
	pendingIDs []string              // Type/id of matches that were read but are no longer in memory
	nextPage   paging.BranchPosition // next page of the FHIR server
	// currentPage is the position of the current page until one of its matches is used: until then, the page can be read again.
	currentPage *paging.BranchPosition
}

// newMerger starts a search, or continues it at a position that contains each branch.
func newMerger(x *Handler, p searchPlan, at paging.Position) *merger {
	size := pageSize(p.disclosure.isJudged, p.response.count)
	m := &merger{
		pages:       &pageReader{handler: x, query: p.query, judgesEntries: p.disclosure.isJudged, searchesAllTypes: searchesAllTypes(p.interaction)},
		matchFilter: &matchFilter{handler: x, branches: p.branches, cachesAccess: p.inclusions.kinds != (includes{}), grants: grantCache{judge: x.Judge}},
		query:       p.query, disclosure: p.disclosure, pageSize: size, branchSize: branchSize(size, p.response.count, len(p.branches), len(p.query.order) > 0),
		sources: make([]branchState, len(p.branches)), serverTotal: -1, maxPages: x.maxPageRequests(),
	}
	for i := range m.sources {
		m.sources[i].nextPage.IsDone = p.query.matchesNothing
	}
	for i, p := range at.Branches {
		m.sources[i].pendingIDs = p.Pending
		m.sources[i].nextPage = paging.BranchPosition{Path: p.Path, Query: p.Query, IsDone: p.IsDone, MayBeIncomplete: p.MayBeIncomplete}
	}
	return m
}

// maxPageRequests returns the maximum number of requests that read pages of the FHIR server for one page. The remaining
// requests are for dependencies of matches and for included resources.
func (x *Handler) maxPageRequests() int {
	return max(min(x.MaxRequests*3/4, x.MaxRequests-x.Server.RequestCount()), 1)
}

// fillPage collects the matches of a page. If no size is set, the page is as long as the FHIR server's.
func (m *merger) fillPage(ctx context.Context) error {
	m.matches = newEntryList()
	for m.pageSize == 0 || len(m.matches) < m.pageSize {
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

// pageEntries returns the matches of a page and the included entries.
func (m *merger) pageEntries(ctx context.Context, inclusions inclusionPlan) ([]message.Entry, error) {
	if err := m.fillPage(ctx); err != nil {
		return nil, err
	}
	if len(m.nonMatches) == 0 && len(inclusions.referringChains) == 0 {
		return m.matches, nil
	}
	included, err := m.includedEntries(ctx, inclusions)
	return append(m.matches, included...), err
}

// next removes and returns the next match. It returns nil if peek does.
func (m *merger) next(ctx context.Context) (*message.Entry, error) {
	first, err := m.peek(ctx, len(m.query.order) == 0)
	if first == nil || err != nil {
		return nil, err
	}
	e := &first.matches[0]
	m.nonMatches = append(m.nonMatches, first.nonMatches...)
	first.matches, first.nonMatches, first.currentPage = first.matches[1:], nil, nil
	return e, nil
}

// lookAhead reads until there is a visible match for the next page, or all branches are exhausted. Matches that earlier pages
// left are visible, except for types with dependencies: these matches may have been left before they were judged.
func (m *merger) lookAhead(ctx context.Context) error {
	for _, from := range m.sources {
		if len(from.matches) > 0 {
			return nil
		}
		if len(from.pendingIDs) > 0 {
			if resourceType, _, _ := strings.Cut(from.pendingIDs[0], "/"); !m.pages.handler.TypeRules.MayNeedLookups(resourceType) {
				return nil
			}
		}
	}
	_, err := m.peek(ctx, true)
	return err
}

// peek returns the branch with the next match in the order of the search or, if stopAtFirst is true, the first branch that has
// a match. It returns nil if all branches are exhausted or the limits of a page forbid another request.
func (m *merger) peek(ctx context.Context, stopAtFirst bool) (*branchState, error) {
	var first *branchState
	for n := range m.sources {
		from := &m.sources[n]
		for len(from.matches) == 0 && (len(from.pendingIDs) > 0 || !from.nextPage.IsDone) {
			if !m.mayFetch() {
				return nil, nil
			}
			if err := m.fetch(ctx, n); err != nil {
				return nil, err
			}
		}
		if len(from.matches) > 0 && (first == nil || m.query.order.isBefore(m.pages.handler.Parameters, &from.matches[0], &first.matches[0])) {
			first = from
		}
		if first != nil && stopAtFirst {
			break
		}
	}
	return first, nil
}

// mayFetch reports whether another page of the FHIR server may be read. A page without a set size ends with the FHIR server's
// page. Any other page also ends at the size limit in bytes.
func (m *merger) mayFetch() bool {
	return m.pages.fetchedCount < m.maxPages && !m.hasPostponed && (len(m.matches) == 0 || m.pageSize > 0 && m.pages.totalBytes < m.pages.handler.MaxResponseBytes)
}

// fetch loads the next matches of branch n: those left by earlier pages, or the next page.
func (m *merger) fetch(ctx context.Context, n int) error {
	from := &m.sources[n]
	from.nonMatches, from.currentPage = nil, nil
	before := m.pages.newCheckpoint()
	var err error
	if len(from.pendingIDs) > 0 {
		err = m.fetchPending(ctx, n)
	} else {
		err = m.fetchPage(ctx, n)
	}
	if err == nil && m.disclosure.isJudged && len(from.matches)+len(from.nonMatches) == 0 {
		m.pages.discardSince(before) // no entry was visible
	}
	return err
}

// fetchPage loads the next page of branch n. A first page that may be truncated is requested again with a larger size.
func (m *merger) fetchPage(ctx context.Context, n int) error {
	from, b := &m.sources[n], m.matchFilter.branches[n]
	parameters := slices.Concat(m.query.parameters, b.confiningParameters)
	for size := m.branchSize; ; size = min(2*size, maxCount) {
		got, next, err := m.pages.read(ctx, size, func(size int) message.Call { return b.call(m.query.method, parameters, size) }, from.nextPage)
		if err != nil {
			return err
		}
		isTruncated := next.IsDone && got.Total < 0 && isFullPage(got, from.nextPage, size)
		// A denied match can fill the last page, so the total must not depend on whether the page is full.
		next.MayBeIncomplete = isTruncated || m.disclosure.hasPolicies && next.IsDone && got.Total < 0
		if isTruncated && m.disclosure.isJudged && from.nextPage.IsFirst() && size < maxCount && m.pages.fetchedCount+len(m.sources) <= m.maxPages {
			continue
		}
		if before := from.nextPage; !(before.IsFirst() && m.query.hasResolvedChain) {
			from.currentPage = &before
		}
		m.serverTotal, from.nextPage = got.Total, next
		return m.addPage(ctx, n, got.Entries)
	}
}

// branchSize returns the number of matches to request from a branch for a page of pageSize; 0 lets the FHIR server decide.
// Sorted branches each contribute a part of a page. The result is at least an eighth of the page, which limits the number of
// requests per branch.
func branchSize(pageSize, count, branches int, sorted bool) int {
	size := max(cmp.Or(pageSize, min(count, maxCount)), 0)
	switch {
	case branches == 1 || pageSize == 0:
		return size
	case sorted:
		return max(min(size, (2*size+branches-1)/branches), (size+7)/8, minMergedPage)
	default:
		return max(size, minMergedPage)
	}
}

// isFullPage reports whether a page without a next link may not be the last one: it has as many matches as requested. Some FHIR
// servers, such as HAPI, omit the link if duplicates fill the page. The requested number is in the page's own link or, for the
// first page, in the call.
func isFullPage(b *message.Bundle, at paging.BranchPosition, requestedCount int) bool {
	query, _ := url.ParseQuery(at.Query)
	if n, err := strconv.Atoi(query.Get("_count")); err == nil {
		requestedCount = n
	}
	matches, _ := splitEntries(b.Entries)
	return requestedCount > 0 && len(matches) == requestedCount
}

// pageReader reads pages of the FHIR server. It retains their buffers until release.
type pageReader struct {
	handler          *Handler
	query            query
	judgesEntries    bool // entries are parsed, and pages that are too large are requested again
	searchesAllTypes bool // the client's search specifies no types
	fetchedCount     int  // number of pages read
	totalBytes       int64
	buffers          []*message.ResponseBuffer
	pooledLists      [][]message.Entry // lists of entries to return to the pool
}

// read requests a page of size matches from the FHIR server, by a call for the first page or by the page's own link, and
// returns the position of the next page. If a page exceeds the size limit for responses, it is requested again with half as
// many matches. The result is valid until release.
func (p *pageReader) read(ctx context.Context, size int, first func(size int) message.Call, at paging.BranchPosition) (*message.Bundle, paging.BranchPosition, error) {
	for {
		c, before := at.Call(first(size)), p.newCheckpoint()
		a, err := p.fetchBuffered(ctx, c)
		if errors.Is(err, message.ErrResponseTooLong) {
			if at, size, err = halvePage(at, size, err); err != nil {
				return nil, at, err
			}
			p.discardSince(before)
			continue
		}
		if err != nil {
			return nil, at, err
		}
		if at.IsFirst() && a.Status == http.StatusNotFound && p.searchesAllTypes {
			return &message.Bundle{Total: -1}, paging.BranchPosition{IsDone: true}, nil // the FHIR server does not support the type
		}
		got, err := p.handler.Addresses.ParseSearchResponse(a, p.judgesEntries, newEntryList(), p.query.sentTerms)
		if err != nil {
			return nil, at, err
		}
		p.pooledLists = append(p.pooledLists, got.Entries)
		next, err := at.Next(got.Links, c)
		return got, next, err
	}
}

// fetchBuffered sends a call to the FHIR server and retains its response.
func (p *pageReader) fetchBuffered(ctx context.Context, c message.Call) (*message.Response, error) {
	p.fetchedCount++
	buffered, err := p.handler.Server.DoBuffered(ctx, c)
	p.buffers = append(p.buffers, buffered)
	if err != nil {
		return nil, err
	}
	p.totalBytes += int64(len(buffered.Response.Body))
	return &buffered.Response, nil
}

// checkpoint records the number of retained responses and the reserved memory.
type checkpoint struct {
	responses     int
	reservedBytes int64
}

func (p *pageReader) newCheckpoint() checkpoint {
	return checkpoint{len(p.buffers), p.handler.Server.MemoryInUse()}
}

// discardSince releases the responses retained and the memory reserved since a checkpoint. These responses may not be in use.
func (p *pageReader) discardSince(since checkpoint) {
	for _, buffered := range p.buffers[since.responses:] {
		buffered.Release()
	}
	p.buffers = p.buffers[:since.responses]
	p.handler.Server.ReleaseExcept(since.reservedBytes, nil)
}

// halvePage halves the number of matches of a page. Links of the FHIR server specify the number as _count.
func halvePage(at paging.BranchPosition, size int, tooLongErr error) (paging.BranchPosition, int, error) {
	if at.IsFirst() {
		if size == 1 {
			return at, size, tooLongErr
		}
		return at, cmp.Or(size/2, DefaultCount/2), nil
	}
	query, err := url.ParseQuery(at.Query)
	n, _ := strconv.Atoi(query.Get("_count"))
	if err != nil || n < 2 || query.Has("page") || query.Has("_page") {
		return at, size, tooLongErr // a single match, or a link with an offset that depends on _count
	}
	query.Set("_count", strconv.Itoa(n/2))
	at.Query = query.Encode()
	return at, size, nil
}

// splitEntries splits entries into matches and others.
func splitEntries(entries []message.Entry) (matches, nonMatches []message.Entry) {
	for _, e := range entries {
		if e.Mode == "include" || e.Mode == "outcome" {
			nonMatches = append(nonMatches, e)
		} else {
			matches = append(matches, e)
		}
	}
	return matches, nonMatches
}

// addPage adds the visible entries of a page to branch n. An OperationOutcome of the FHIR server may concern any resource, so
// judged pages omit it.
func (m *merger) addPage(ctx context.Context, n int, entries []message.Entry) error {
	from := &m.sources[n]
	if !m.disclosure.isJudged {
		var nonMatches []message.Entry
		from.matches, nonMatches = splitEntries(entries)
		m.nonMatches = append(m.nonMatches, nonMatches...)
		return nil
	}
	from.matches = entries[:0]
	for i := range entries {
		e := &entries[i]
		if e.Mode == "include" {
			from.nonMatches = append(from.nonMatches, *e)
		}
		if e.Mode == "include" || e.Mode == "outcome" {
			continue
		}
		if !m.matchFilter.mayJudge(e.ParsedResource.Type) {
			from.pendingIDs, m.hasPostponed = append(from.pendingIDs, e.ParsedResource.Type+"/"+e.ParsedResource.ID), true
			continue
		}
		ok, err := m.matchFilter.acceptMatch(ctx, e, n)
		if err != nil {
			return err
		}
		if !ok {
			m.droppedCount++
			continue
		}
		from.matches = append(from.matches, *e)
	}
	return nil
}

// maxDependencies is the maximum number of dependencies per resource.
const maxDependencies = 20

// matchFilter decides which matches are visible.
type matchFilter struct {
	handler      *Handler
	branches     []branch
	cachesAccess bool // included entries may depend on whether matches are covered
	grants       grantCache
	seen         map[interaction.Reference]bool // resources found so far; used only if there are several branches
}

// mayJudge reports whether a match of a type may be judged for this page. Other matches are left for the next page, because
// looking up their dependencies could exceed the limit on requests.
func (f *matchFilter) mayJudge(resourceType string) bool {
	return !f.handler.TypeRules.MayNeedLookups(resourceType) || f.handler.Server.RequestCount()+maxDependencies <= f.handler.MaxRequests
}

// acceptMatch reports whether a match of branch n is visible and neither this branch nor an earlier one has found it already.
// Matches of another type than the branch's are dropped.
func (f *matchFilter) acceptMatch(ctx context.Context, e *message.Entry, n int) (bool, error) {
	b, of := f.branches[n], interaction.Reference{Type: e.ParsedResource.Type, ID: e.ParsedResource.ID}
	if b.resourceType != "" && b.resourceType != smart.AnyType && b.resourceType != e.ParsedResource.Type || f.seen[of] {
		return false, nil
	}
	for _, earlier := range f.branches[:n] {
		if earlier.finds(f.handler.Judge.Rights(), e.ParsedResource) {
			return false, nil
		}
	}
	grants := f.grants.get(e.ParsedResource.Type, smart.Search)
	ok, err := f.handler.Judge.IsCovered(ctx, e.ParsedResource, grants)
	if ok && f.cachesAccess {
		f.handler.Judge.CacheAccess(e.ParsedResource, grants)
	}
	if ok && len(f.branches) > 1 {
		if f.seen == nil {
			f.seen = map[interaction.Reference]bool{}
		}
		f.seen[of] = true
	}
	return ok, err
}

// release returns the pages' buffers, which contain all entries, and the lists of entries to their pools.
func (p *pageReader) release(lists ...[]message.Entry) {
	for _, list := range append(p.pooledLists, lists...) {
		if clear(list); cap(list) <= maxPooledEntries {
			list = list[:0]
			entryLists.Put(&list)
		}
	}
	for _, buffered := range p.buffers {
		buffered.Release()
	}
}

// maxIDsPerGet is the maximum number of ids in a search by GET; it limits the URL to 2,000 characters. Longer searches use
// POST.
const maxIDsPerGet = 40

// searchByIDs returns a function that returns a search by ids; its argument is the page size.
func searchByIDs(method, resourceType string, parameters []smart.Parameter, ids int) func(size int) message.Call {
	if ids > maxIDsPerGet {
		method = http.MethodPost
	}
	return func(size int) message.Call { return branch{resourceType: resourceType}.call(method, parameters, size) }
}

// fetchPending loads the first pending matches of branch n, as many as fit on a page, by one search. They are judged like all
// matches. Deleted resources are omitted.
func (m *merger) fetchPending(ctx context.Context, n int) error {
	from := &m.sources[n]
	resourceType, _, _ := strings.Cut(from.pendingIDs[0], "/")
	var ids []string
	for _, reference := range from.pendingIDs[:min(len(from.pendingIDs), max(m.pageSize, minMergedPage))] {
		of, id, _ := strings.Cut(reference, "/")
		if of != resourceType {
			break
		}
		ids = append(ids, id)
	}
	requestedIDs, rest := from.pendingIDs[:len(ids)], from.pendingIDs[len(ids):]
	found, nonMatches, err := m.findByIDs(ctx, resourceType, ids)
	if err != nil {
		return err
	}
	var entries []message.Entry
	for _, reference := range requestedIDs {
		if e, ok := found[reference]; ok {
			entries = append(entries, e)
		}
	}
	from.nonMatches, from.pendingIDs = nonMatches, nil
	err = m.addPage(ctx, n, entries)
	from.pendingIDs = slices.Concat(from.pendingIDs, rest)
	return err
}

// findByIDs returns the resources of a type with the given ids, and the included entries.
func (m *merger) findByIDs(ctx context.Context, resourceType string, ids []string) (found map[string]message.Entry, nonMatches []message.Entry, err error) {
	parameters := slices.DeleteFunc(slices.Clone(m.query.parameters), func(p smart.Parameter) bool { return !paging.ControlsResults(p) })
	parameters = append(parameters, smart.Parameter{Name: "_id", Value: strings.Join(ids, ",")})
	first := searchByIDs(m.query.method, resourceType, parameters, len(ids))
	found = map[string]message.Entry{}
	for at := (paging.BranchPosition{}); !at.IsDone; {
		got, next, err := m.pages.read(ctx, len(ids), first, at)
		if err != nil {
			return nil, nil, err
		}
		matches, others := splitEntries(got.Entries)
		for _, e := range matches {
			found[e.ParsedResource.Type+"/"+e.ParsedResource.ID] = e
		}
		nonMatches, at = append(nonMatches, others...), next
	}
	return found, slices.DeleteFunc(nonMatches, func(e message.Entry) bool { return e.Mode == "outcome" }), nil
}
