package remote

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/boundedcache"
	"github.com/caddy-fhir/caddy-fhir/terminology/expansion"
	"github.com/caddy-fhir/caddy-fhir/terminology/negotiation"
	"github.com/caddy-fhir/caddy-fhir/terminology/textindex"
)

// FullExpansions fetches the full expansion of a value set and then searches it locally. An expansion is fetched after several
// requests that differ only in their filters. All fields must be set before the first use. FullExpansions is safe for
// concurrent use. A nil FullExpansions does nothing.
//
// Call [FullExpansions.Respond] before each request to a server, and [FullExpansions.RecordResponse] after it. If an expansion
// is too large or its pages are inconsistent, the fetch is not retried for an hour.
type FullExpansions struct {
	// FetchAfter is the number of different filters after which an expansion is fetched. Default: 5.
	FetchAfter int

	// MaxEntries is the maximum number of entries of an expansion. Default: 150,000. ICD-10-CM has 98,186.
	MaxEntries int

	// MaxBytes is the approximate size in bytes above which the least recently used expansions are evicted. Default: 128 MiB.
	MaxBytes int

	// PageSize is the number of entries requested per page. Default: 1000.
	PageSize int

	// MaxResponseEntries is the maximum number of entries in a response. More cause a too-costly error. Default: 10,000.
	MaxResponseEntries int

	// TTL is how long an expansion is fresh, unless the server specifies a shorter time. Default: 1 hour.
	TTL time.Duration

	// MaxStale is how long an expired expansion may be used for new filters while the server fails; see
	// [FullExpansions.RespondStale]. Default: 0, which disables this.
	MaxStale time.Duration

	// Logger receives fetched expansions at info level and failed fetches, with the reason, at warn level. Default: none.
	Logger *slog.Logger

	mu             sync.Mutex // guards records
	records        boundedcache.Cache[string, *filterRecord]
	expansions     boundedcache.Cache[string, fetchedExpansion]
	runningFetches int
}

// filterRecord records the filters that clients used on an expansion of the server.
type filterRecord struct {
	url         string
	filters     map[string]bool
	isFetching  bool
	nextAttempt time.Time // time before which the expansion must not be fetched again
}

// fetchedExpansion is a fetched expansion.
type fetchedExpansion struct {
	*expansion.FullExpansion
	url   string
	until time.Time
}

const (
	maxRecords      = 1000
	maxFetches      = 2               // maximum number of concurrent fetches
	fetchTimeout    = 5 * time.Minute // timeout for fetching all pages of an expansion
	retryDelay      = time.Hour       // delay after a failed fetch
	staleRetryDelay = time.Minute     // delay after a failed fetch if there is a stale expansion
)

var (
	errTooMany   = errors.New("the expansion is too large to be fetched completely")
	errNotShared = errors.New("the server does not allow its response to be stored")
)

// Respond returns a response from a full expansion. If synonyms is not nil, it is used for the filter. Respond returns nil if
// the request must be sent to the server, and an error if the response would be too large.
func (w *FullExpansions) Respond(s *Server, q ParsedRequest, synonyms *textindex.Synonyms) (*Response, error) {
	return w.respond(s, q, synonyms, w.findFresh)
}

// RespondStale is like [FullExpansions.Respond], but for requests that the server failed to serve. It also uses expansions that
// expired less than MaxStale ago. The response must not be stored.
func (w *FullExpansions) RespondStale(s *Server, q ParsedRequest, synonyms *textindex.Synonyms) (*Response, error) {
	a, err := w.respond(s, q, synonyms, func(_ *Server, x search) (fetchedExpansion, bool) { return w.expansions.Get(x.key) })
	if a != nil {
		a.Header["Cache-Control"] = []string{"no-store"}
	}
	return a, err
}

// respond returns a response from the expansion that find returns, or nil if the request must be sent to the server.
func (w *FullExpansions) respond(s *Server, q ParsedRequest, synonyms *textindex.Synonyms, find func(*Server, search) (fetchedExpansion, bool)) (*Response, error) {
	if w == nil {
		return nil, nil
	}
	x, ok := parseSearch(s, q)
	if !ok {
		return nil, nil
	}
	found, ok := find(s, x)
	if !ok || x.page.Filter == "" && !isPartial(x.page, found.Len()) {
		return nil, nil // the server may return the full expansion as a tree
	}
	body, err := found.Expand(x.page, synonyms, cmp.Or(w.MaxResponseEntries, 10_000))
	if err != nil {
		return nil, err
	}
	kind := "application/fhir+json"
	if x.xml {
		kind = "application/fhir+xml"
		if body, err = negotiation.AppendXML(nil, body); err != nil {
			return nil, err
		}
	}
	tag := sha256.Sum256(body)
	header := http.Header{"Content-Type": {kind}, "Etag": {fmt.Sprintf(`"%x"`, tag[:16])}}
	return &Response{Status: http.StatusOK, Header: header, Resource: "ValueSet", Body: body}, nil
}

// findFresh returns the fresh expansion for a search. It starts to refetch an expired one and removes it after MaxStale.
func (w *FullExpansions) findFresh(s *Server, x search) (fetchedExpansion, bool) {
	found, ok := w.expansions.Get(x.key)
	if !ok || time.Now().Before(found.until) {
		return found, ok
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if found, ok = w.expansions.Get(x.key); ok && time.Now().Before(found.until) { // another request has refreshed the expansion
		return found, true
	}
	if !ok || !time.Now().Before(found.until.Add(w.MaxStale)) {
		w.expansions.Delete(x.key)
	}
	if item := w.record(x); !time.Now().Before(item.nextAttempt) {
		w.beginFetch(s, x, item)
	}
	return fetchedExpansion{}, false
}

// RecordResponse records a response from the server. After enough different filters, it starts to fetch the full expansion.
func (w *FullExpansions) RecordResponse(s *Server, q ParsedRequest, a *Response) {
	if w == nil || a.Status != http.StatusOK {
		return
	}
	x, ok := parseSearch(s, q)
	if !ok || x.page.Filter == "" {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	item := w.record(x)
	if _, isStored := w.expansions.Get(x.key); isStored || item.isFetching || time.Now().Before(item.nextAttempt) {
		return
	}
	item.filters[x.page.Filter] = true
	if len(item.filters) >= cmp.Or(w.FetchAfter, 5) {
		w.beginFetch(s, x, item)
	}
}

// record returns the filter record for a search and creates it if necessary. The caller must hold w.mu.
func (w *FullExpansions) record(x search) *filterRecord {
	item, ok := w.records.Get(x.key)
	if !ok {
		item = &filterRecord{url: x.otherParameters.Get("url"), filters: make(map[string]bool)}
		w.records.MaxEntries = maxRecords
		w.records.Put(x.key, item, 1)
	}
	return item
}

// beginFetch starts fetching an expansion unless maxFetches fetches are running. The caller must hold w.mu.
func (w *FullExpansions) beginFetch(s *Server, x search, item *filterRecord) {
	if w.runningFetches < maxFetches && !item.isFetching {
		w.runningFetches++
		item.isFetching = true
		go w.fetch(s, x, item)
	}
}

func (w *FullExpansions) fetch(s *Server, x search, item *filterRecord) {
	ctx, cancel := context.WithTimeout(context.Background(), fetchTimeout)
	defer cancel()
	logger := cmp.Or(w.Logger, slog.New(slog.DiscardHandler))
	start := time.Now()
	found, ttl, err := w.fetchPages(ctx, s, x)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.runningFetches--
	item.isFetching, item.filters = false, make(map[string]bool)
	now := time.Now()
	if current, _ := w.records.Get(x.key); current != item {
		return // Forget was called during the fetch
	}
	if err != nil {
		item.nextAttempt = now.Add(retryDelay)
		if _, stale := w.expansions.Get(x.key); stale {
			item.nextAttempt = now.Add(staleRetryDelay)
		}
		logger.Warn("full expansion not fetched", slog.String("url", item.url), slog.Any("error", err))
		return
	}
	item.nextAttempt = now.Add(ttl) // prevents alternating fetches of popular expansions that evict each other
	w.expansions.MaxEntries, w.expansions.MaxCost = maxRecords, int64(cmp.Or(w.MaxBytes, 128<<20))
	w.expansions.Put(x.key, fetchedExpansion{found, item.url, now.Add(ttl)}, int64(found.Size()))
	logger.Info("full expansion fetched", slog.String("url", item.url), slog.Int("entries", found.Len()),
		slog.Int("bytes", found.Size()), slog.Duration("took", now.Sub(start)))
}

// Forget removes the expansions of a value set by canonical, in all versions. If canonical is empty, it removes all expansions.
func (w *FullExpansions) Forget(canonical string) {
	if w == nil {
		return
	}
	canonicalURL, _, _ := strings.Cut(canonical, "|")
	matches := func(url string) bool {
		own, _, _ := strings.Cut(url, "|")
		return canonicalURL == "" || own == canonicalURL
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.records.DeleteFunc(func(_ string, item *filterRecord) bool { return matches(item.url) })
	w.expansions.DeleteFunc(func(_ string, item fetchedExpansion) bool { return matches(item.url) })
}

// CacheUsage returns the number of expansions and their approximate size in bytes.
func (w *FullExpansions) CacheUsage() (expansions int, bytes int64) {
	if w == nil {
		return 0, 0
	}
	return w.expansions.Size()
}

// fetchPages fetches an expansion page by page. It returns the expansion and its lifetime. It always requests designations,
// which the search needs. Responses include them only if the client requests them.
func (w *FullExpansions) fetchPages(ctx context.Context, s *Server, x search) (*expansion.FullExpansion, time.Duration, error) {
	language := cmp.Or(x.otherParameters.Get("displayLanguage"), x.request.AcceptLanguage)
	b := &expansion.FullExpansionBuilder{Languages: language}
	ttl, more, err := w.fetchPage(ctx, s, x, b)
	if err != nil {
		return nil, 0, err
	}
	if needsDesignations := x.otherParameters.Get("includeDesignations") == "true" || x.otherParameters.Has("designation"); !needsDesignations && !b.HasDesignations() {
		b = &expansion.FullExpansionBuilder{Languages: language, OmitDesignations: true}
		x.otherParameters = maps.Clone(x.otherParameters)
		x.otherParameters.Set("includeDesignations", "true")
		more = true
	}
	for more {
		if _, more, err = w.fetchPage(ctx, s, x, b); err != nil {
			return nil, 0, err
		}
	}
	whole, err := b.Build()
	return whole, ttl, err
}

func (w *FullExpansions) fetchPage(ctx context.Context, s *Server, x search, b *expansion.FullExpansionBuilder) (ttl time.Duration, more bool, err error) {
	count := cmp.Or(w.PageSize, 1000)
	values := maps.Clone(x.otherParameters)
	values["offset"], values["count"] = []string{strconv.Itoa(b.Offset())}, []string{strconv.Itoa(count)}
	response, err := s.Do(ctx, Request{Path: x.request.Path, Query: values.Encode(), AcceptLanguage: x.request.AcceptLanguage})
	if err != nil {
		return 0, false, err
	}
	if response.Status != http.StatusOK || !strings.Contains(response.Header.Get("Content-Type"), "json") {
		return 0, false, fmt.Errorf("%w: status %d, %s", errMalformed, response.Status, response.Header.Get("Content-Type"))
	}
	if ttl, err = w.ttl(response.Header); err != nil {
		return 0, false, err
	}
	if more, err = b.Add(response.Body, count); err != nil {
		return 0, false, err
	}
	return ttl, more, w.checkSize(b)
}

func (w *FullExpansions) checkSize(b *expansion.FullExpansionBuilder) error {
	total, _ := b.Total()
	if limit := cmp.Or(w.MaxEntries, 150_000); total > limit || b.Offset() > limit {
		return fmt.Errorf("%w: it has %d entries", errTooMany, max(total, b.Offset()))
	}
	if b.Size() > cmp.Or(w.MaxBytes, 128<<20) {
		return fmt.Errorf("%w: it needs more than %d bytes", errTooMany, b.Size())
	}
	return nil
}

// ttl returns the lifetime of a response according to its headers (RFC 9111 §5.2.2), but at most [FullExpansions.TTL]. It
// returns an error if the response must not be stored.
func (w *FullExpansions) ttl(header http.Header) (time.Duration, error) {
	ttl := cmp.Or(w.TTL, time.Hour)
	for directive := range strings.SplitSeq(strings.Join(header["Cache-Control"], ","), ",") {
		name, value, _ := strings.Cut(strings.ToLower(strings.TrimSpace(directive)), "=")
		switch name {
		case "no-store", "no-cache", "private":
			return 0, errNotShared
		case "max-age", "s-maxage":
			if seconds, err := strconv.ParseUint(strings.Trim(value, `"`), 10, 31); err == nil {
				ttl = min(ttl, time.Duration(seconds)*time.Second)
			}
		}
	}
	if ttl == 0 {
		return 0, errNotShared
	}
	return ttl, nil
}

// search is a parsed request for a part of an expansion.
type search struct {
	key             string
	page            expansion.Page
	otherParameters url.Values // parameters other than pagingParameters and _format
	request         Request
	xml             bool // whether the response must be XML
}

// parseSearch parses a request. It returns false if only the server can handle the request.
func parseSearch(s *Server, q ParsedRequest) (search, bool) {
	if !strings.HasSuffix(q.Request.Path, "$expand") || q.err != nil || !q.hasPage {
		return search{}, false
	}
	x := search{page: q.page, otherParameters: make(url.Values), request: q.Request}
	format := q.Request.acceptHeader()
	seen := make(map[string]bool)
	for i := range q.inputs {
		in := &q.inputs[i]
		isPage, isFormat := slices.Contains(pagingParameters, in.Name), in.Name == "_format"
		again := seen[in.Name]
		seen[in.Name] = true
		switch {
		case (isPage || isFormat) && again:
			return search{}, false
		case in.Name == "_pretty", in.Complex != nil, in.Resource != nil, in.Parts != nil:
			return search{}, false
		case isFormat && in.Value != "":
			format = in.Value
		case !isPage && !isFormat:
			x.otherParameters.Add(in.Name, in.Value)
		}
	}
	x.xml = strings.Contains(format, "xml")
	x.key = fmt.Sprintf("%p %s %s?%s %s", s, s.base, q.Request.Path, x.otherParameters.Encode(), q.Request.AcceptLanguage)
	if x.xml && !negotiation.HasXML() {
		return search{}, false
	}
	return x, x.xml != strings.Contains(format, "json")
}

// isPartial reports whether a page excludes any of n entries.
func isPartial(p expansion.Page, n int) bool {
	return p.Offset != nil && *p.Offset > 0 || p.Count != nil && *p.Count < n
}
