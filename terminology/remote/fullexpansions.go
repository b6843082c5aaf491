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

// FullExpansions fetches the full expansion of a value set after several different filters with otherwise equal parameters, and
// then searches it locally. Its fields must be set before the first use. It is safe for concurrent use. A nil FullExpansions
// does nothing.
//
// Call [FullExpansions.Answer] before each request to a server, and [FullExpansions.RecordResponse] after it. If an expansion is too large or
// its pages are inconsistent, it is not retried for an hour.
type FullExpansions struct {
	// After is the number of different filters after which an expansion is fetched. Default: 5.
	After int

	// MaxEntries is the maximum number of entries of an expansion. Default: 150,000, enough for ICD-10-CM with 98,186.
	MaxEntries int

	// MaxBytes is the approximate maximum memory of all expansions; the least recently used are evicted. Default: 128 MiB.
	MaxBytes int

	// PageSize is the number of entries per request. Default: 1000.
	PageSize int

	// MaxAnswer is the maximum number of entries in a response; larger ones are too costly. Default: 10,000.
	MaxAnswer int

	// TTL is the maximum time until an expansion is fetched again; servers can shorten it. Default: 1 hour.
	TTL time.Duration

	// MaxStale is how long an expired expansion is used for new filters while the server fails; see [FullExpansions.StaleAnswer].
	// Default: 0, never.
	MaxStale time.Duration

	// Logger logs fetched expansions (info) and failed fetches with reasons (warn). Default: none.
	Logger *slog.Logger

	mu      sync.Mutex // guards watched
	watched boundedcache.Cache[string, *watched]
	wholes  boundedcache.Cache[string, whole]
	running int
}

// watched is the record of filters on an expansion at the server.
type watched struct {
	url     string
	filters map[string]bool
	running bool
	paused  time.Time // earliest next fetch
}

// whole is a fetched expansion.
type whole struct {
	*expansion.FullExpansion
	url   string
	until time.Time
}

const (
	maxWatched  = 1000
	maxPulls    = 2               // maximum concurrent fetches
	pullTimeout = 5 * time.Minute // timeout for fetching all pages of an expansion
	pullPause   = time.Hour       // after a failed fetch
	stalePause  = time.Minute     // after a failed fetch while a stale expansion is used
)

var (
	errTooMany   = errors.New("the expansion is too large to be fetched whole")
	errNotShared = errors.New("the server says that its answer is not to be stored")
)

// Answer returns a response from a full expansion, with synonyms for the filter unless nil. It returns nil if the
// request must be sent to the server, and an error if the response would be too large.
func (w *FullExpansions) Answer(s *Server, q Question, synonyms *textindex.Synonyms) (*Answer, error) {
	return w.answer(s, q, synonyms, w.fresh)
}

// StaleAnswer is like [FullExpansions.Answer], but for a failed server: it also uses expansions that expired less than MaxStale ago. The
// response must not be stored.
func (w *FullExpansions) StaleAnswer(s *Server, q Question, synonyms *textindex.Synonyms) (*Answer, error) {
	a, err := w.answer(s, q, synonyms, func(_ *Server, x search) (whole, bool) { return w.wholes.Get(x.key) })
	if a != nil {
		a.Header["Cache-Control"] = []string{"no-store"}
	}
	return a, err
}

// answer returns a response from an expansion that find returns, or nil.
func (w *FullExpansions) answer(s *Server, q Question, synonyms *textindex.Synonyms, find func(*Server, search) (whole, bool)) (*Answer, error) {
	if w == nil {
		return nil, nil
	}
	x, ok := searchOf(s, q)
	if !ok {
		return nil, nil
	}
	found, ok := find(s, x)
	if !ok || x.page.Filter == "" && !isPart(x.page, found.Len()) {
		return nil, nil // the server may return a tree
	}
	body, err := found.Expand(x.page, synonyms, cmp.Or(w.MaxAnswer, 10_000))
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
	return &Answer{Status: http.StatusOK, Header: header, Resource: "ValueSet", Body: body}, nil
}

// fresh returns the fresh expansion for a search. It fetches a stale one again and removes it after MaxStale.
func (w *FullExpansions) fresh(s *Server, x search) (whole, bool) {
	found, ok := w.wholes.Get(x.key)
	if !ok || time.Now().Before(found.until) {
		return found, ok
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if found, ok = w.wholes.Get(x.key); ok && time.Now().Before(found.until) { // another request has replaced it
		return found, true
	}
	if !ok || !time.Now().Before(found.until.Add(w.MaxStale)) {
		w.wholes.Delete(x.key)
	}
	if item := w.watch(x); !time.Now().Before(item.paused) {
		w.begin(s, x, item)
	}
	return whole{}, false
}

// RecordResponse records a response of the server, and starts fetching the expansion if it was searched often.
func (w *FullExpansions) RecordResponse(s *Server, q Question, a *Answer) {
	if w == nil || a.Status != http.StatusOK {
		return
	}
	x, ok := searchOf(s, q)
	if !ok || x.page.Filter == "" {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	item := w.watch(x)
	if _, here := w.wholes.Get(x.key); here || item.running || time.Now().Before(item.paused) {
		return
	}
	item.filters[x.page.Filter] = true
	if len(item.filters) >= cmp.Or(w.After, 5) {
		w.begin(s, x, item)
	}
}

// watch returns the record of an expansion at the server. w.mu must be held.
func (w *FullExpansions) watch(x search) *watched {
	item, ok := w.watched.Get(x.key)
	if !ok {
		item = &watched{url: x.rest.Get("url"), filters: make(map[string]bool)}
		w.watched.MaxEntries = maxWatched
		w.watched.Put(x.key, item, 1)
	}
	return item
}

// begin starts fetching an expansion unless maxPulls fetches are running. w.mu must be held.
func (w *FullExpansions) begin(s *Server, x search, item *watched) {
	if w.running < maxPulls && !item.running {
		w.running++
		item.running = true
		go w.pull(s, x, item)
	}
}

func (w *FullExpansions) pull(s *Server, x search, item *watched) {
	ctx, cancel := context.WithTimeout(context.Background(), pullTimeout)
	defer cancel()
	logger := cmp.Or(w.Logger, slog.New(slog.DiscardHandler))
	start := time.Now()
	found, ttl, err := w.gather(ctx, s, x)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running--
	item.running, item.filters = false, make(map[string]bool)
	now := time.Now()
	if current, _ := w.watched.Get(x.key); current != item {
		return // removed by Forget during the fetch
	}
	if err != nil {
		item.paused = now.Add(pullPause)
		if _, stale := w.wholes.Get(x.key); stale {
			item.paused = now.Add(stalePause)
		}
		logger.Warn("expansion not fetched whole", slog.String("url", item.url), slog.Any("error", err))
		return
	}
	item.paused = now.Add(ttl) // prevents popular expansions that evict each other from being fetched alternately
	w.wholes.MaxEntries, w.wholes.MaxCost = maxWatched, int64(cmp.Or(w.MaxBytes, 128<<20))
	w.wholes.Put(x.key, whole{found, item.url, now.Add(ttl)}, int64(found.Size()))
	logger.Info("expansion fetched whole", slog.String("url", item.url), slog.Int("entries", found.Len()),
		slog.Int("bytes", found.Size()), slog.Duration("took", now.Sub(start)))
}

// Forget removes the expansions of a value set by canonical, or all for an empty canonical.
func (w *FullExpansions) Forget(canonical string) {
	if w == nil {
		return
	}
	wanted, _, _ := strings.Cut(canonical, "|")
	matches := func(url string) bool {
		own, _, _ := strings.Cut(url, "|")
		return wanted == "" || own == wanted
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.watched.DeleteFunc(func(_ string, item *watched) bool { return matches(item.url) })
	w.wholes.DeleteFunc(func(_ string, item whole) bool { return matches(item.url) })
}

// CacheUsage returns the number of expansions and their approximate size in bytes.
func (w *FullExpansions) CacheUsage() (expansions int, bytes int64) {
	if w == nil {
		return 0, 0
	}
	return w.wholes.Held()
}

// gather fetches an expansion page by page and returns its lifetime. It always requests designations for the search;
// responses omit them unless the client requests them, as the server does.
func (w *FullExpansions) gather(ctx context.Context, s *Server, x search) (*expansion.FullExpansion, time.Duration, error) {
	language := cmp.Or(x.rest.Get("displayLanguage"), x.q.AcceptLanguage)
	b := &expansion.FullExpansionBuilder{Languages: language}
	ttl, more, err := w.page(ctx, s, x, b)
	if err != nil {
		return nil, 0, err
	}
	if asked := x.rest.Get("includeDesignations") == "true" || x.rest.Has("designation"); !asked && !b.Designations() {
		b = &expansion.FullExpansionBuilder{Languages: language, Terse: true}
		x.rest = maps.Clone(x.rest)
		x.rest.Set("includeDesignations", "true")
		more = true
	}
	for more {
		if _, more, err = w.page(ctx, s, x, b); err != nil {
			return nil, 0, err
		}
	}
	whole, err := b.Build()
	return whole, ttl, err
}

func (w *FullExpansions) page(ctx context.Context, s *Server, x search, b *expansion.FullExpansionBuilder) (ttl time.Duration, more bool, err error) {
	count := cmp.Or(w.PageSize, 1000)
	values := maps.Clone(x.rest)
	values["offset"], values["count"] = []string{strconv.Itoa(b.Offset())}, []string{strconv.Itoa(count)}
	answer, err := s.Ask(ctx, Request{Path: x.q.Path, Query: values.Encode(), AcceptLanguage: x.q.AcceptLanguage})
	if err != nil {
		return 0, false, err
	}
	if answer.Status != http.StatusOK || !strings.Contains(answer.Header.Get("Content-Type"), "json") {
		return 0, false, fmt.Errorf("%w: status %d, %s", errMalformed, answer.Status, answer.Header.Get("Content-Type"))
	}
	if ttl, err = w.ttl(answer.Header); err != nil {
		return 0, false, err
	}
	if more, err = b.Add(answer.Body, count); err != nil {
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

// ttl returns the lifetime of a response according to its headers (RFC 9111 §5.2.2), at most [FullExpansions.TTL].
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

// search is a request for a part of an expansion.
type search struct {
	key  string
	page expansion.Page
	rest url.Values // other parameters
	q    Request
	xml  bool // the response must be XML
}

// searchOf parses a request. It returns false for requests that only the server can handle.
func searchOf(s *Server, q Question) (search, bool) {
	if !strings.HasSuffix(q.Request.Path, "$expand") || q.err != nil || !q.paged {
		return search{}, false
	}
	x := search{page: q.page, rest: make(url.Values), q: q.Request}
	format := q.Request.accept()
	seen := make(map[string]bool)
	for i := range q.inputs {
		in := &q.inputs[i]
		isPage, isFormat := slices.Contains(paging, in.Name), in.Name == "_format"
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
			x.rest.Add(in.Name, in.Value)
		}
	}
	x.xml = strings.Contains(format, "xml")
	x.key = fmt.Sprintf("%p %s %s?%s %s", s, s.base, q.Request.Path, x.rest.Encode(), q.Request.AcceptLanguage)
	if x.xml && !negotiation.HasXML() {
		return search{}, false
	}
	return x, x.xml != strings.Contains(format, "json")
}

// isPart reports whether a page has fewer than all n entries.
func isPart(p expansion.Page, n int) bool {
	return p.Offset != nil && *p.Offset > 0 || p.Count != nil && *p.Count < n
}
