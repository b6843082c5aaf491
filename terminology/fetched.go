package terminology

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/sync/singleflight"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/boundedcache"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
)

// Source provides definitions that are not loaded.
type Source interface {
	// Definitions returns the resources in JSON with the canonical, in any order, or none. The methods HTTPStatus,
	// IssueType and Diagnostics of its error determine the response to the client. The default response is that the
	// definition is currently unavailable.
	Definitions(ctx context.Context, m outcome.Missing) ([]jsontext.Value, error)
}

// FetchedDefinitions fetches definitions from a [Source] on first use and adds them to those of the library. The latest
// version wins, regardless of its source. Its fields must be set before use; it is then safe for concurrent use.
type FetchedDefinitions struct {
	// Source is the source of definitions. Required.
	Source Source

	// MaxBytes is the maximum size of fetched definitions, in bytes of JSON; they use about as much memory again. The
	// oldest definitions are evicted first. A larger definition is too costly. Default: 64 MiB.
	MaxBytes int64

	// TTL is how long a definition is fresh. The first use after that starts to fetch it again, and continues with the old
	// definition. Default: 1 hour.
	TTL time.Duration

	// MissingTTL is the time until the next attempt if a definition does not exist or cannot be fetched again. Default: 1
	// minute.
	MissingTTL time.Duration

	// MaxStale is how long after TTL a definition is used while Source fails. Default: 24 hours.
	MaxStale time.Duration

	// OnChange is called with the canonical of a fetched definition that was changed or deleted. Default: none.
	OnChange func(url string)

	// Logger logs fetches at info level and failed repeated fetches at warn level. Default: none.
	Logger *slog.Logger

	mu         sync.Mutex
	items      fetchedItems
	layers     fetchedLayers
	isRenewing bool
	flights    singleflight.Group
}

// fetchedLayers is a stack of libraries with successively more fetched definitions.
type fetchedLayers struct {
	base     *Library
	current  *Library
	overlays int // number of overlays between base and current
}

// MaxFetches is the maximum number of definitions fetched per request.
const MaxFetches = 100

// sizeLimit returns the maximum size in bytes.
func (f *FetchedDefinitions) sizeLimit() int64 { return cmp.Or(f.MaxBytes, 64<<20) }

const (
	maxAbsent   = 10_000 // definitions that do not exist
	maxOverlays = 16     // overlays before they are merged
)

// Complete fetches missing definitions and returns the library with them.
func (f *FetchedDefinitions) Complete(ctx context.Context, list []outcome.Missing) (*Library, error) {
	for _, m := range list {
		if m = fetchTarget(m); f.isFresh(m) || strings.HasPrefix(m.Canonical, "#") || m.Canonical+m.ID == "" {
			continue
		}
		if err := f.fetchOnce(ctx, m); err != nil {
			return nil, newFetchError(m, err)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.layers.current, nil
}

// fetchTarget returns the definition to fetch: the code system of an implicit value set.
func fetchTarget(m outcome.Missing) outcome.Missing {
	if system, query, ok := strings.Cut(m.Canonical, "?fhir_vs"); ok && m.Kind == "ValueSet" {
		_, version := outcome.SplitCanonical(query)
		return outcome.Missing{Kind: "CodeSystem", Canonical: outcome.Canonical(system, version)}
	}
	return m
}

// fetchOnce fetches a definition once for all concurrent requests, even if the first of them is canceled.
func (f *FetchedDefinitions) fetchOnce(ctx context.Context, m outcome.Missing) error {
	result := f.flights.DoChan(fmt.Sprintf("%q", m), func() (any, error) {
		return nil, f.fetch(context.WithoutCancel(ctx), m)
	})
	select {
	case r := <-result:
		return r.Err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func newFetchError(m outcome.Missing, err error) error {
	if own, ok := errors.AsType[*outcome.Error](err); ok {
		return own
	}
	var described interface {
		HTTPStatus() int
		IssueType() string
		Diagnostics() string
	}
	if errors.As(err, &described) {
		return &outcome.Error{Status: described.HTTPStatus(), Code: described.IssueType(), Text: m.String() + " could not be fetched: " + described.Diagnostics(), Err: err}
	}
	return &outcome.Error{Status: http.StatusBadGateway, Code: "transient", Text: m.String() + " could not be fetched; try again later", Err: err}
}

// isFresh reports whether a fresh result of Source is stored.
func (f *FetchedDefinitions) isFresh(m outcome.Missing) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	item := f.items.get(m)
	return item != nil && time.Now().Before(item.expires)
}

// fetch stores the result of Source. If Forget was called during the fetch, the result may be older than a write, so it is
// fetched again.
func (f *FetchedDefinitions) fetch(ctx context.Context, m outcome.Missing) error {
	if f.isFresh(m) {
		return nil
	}
	for range MaxFetches {
		forgetCount := f.forgetCount()
		resource, err := f.request(ctx, m)
		if err != nil {
			return err
		}
		if stored, err := f.storeUnlessForgotten(forgetCount, m, resource); stored || err != nil {
			return err
		}
	}
	return errors.New("definition invalidated repeatedly while it was fetched")
}

// forgetCount returns the number of calls of Forget.
func (f *FetchedDefinitions) forgetCount() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.items.forgetCount
}

func (f *FetchedDefinitions) storeUnlessForgotten(forgetCount int, m outcome.Missing, resource jsontext.Value) (stored bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.items.forgetCount != forgetCount {
		return false, nil
	}
	return true, f.store(m, resource)
}

// Overlay returns base with the fetched definitions, and starts to fetch expired definitions again.
func (f *FetchedDefinitions) Overlay(base *Library) *Library {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.layers.base != base {
		f.layers.base = base
		f.rebuild()
	}
	f.beginRenewal()
	return f.layers.current
}

// Forget drops all versions of a definition, for example after a write; it is fetched again on its next use. The
// reference is a canonical, or a type and ID such as ValueSet/1; empty means all definitions.
func (f *FetchedDefinitions) Forget(reference string) {
	url, _ := outcome.SplitCanonical(reference)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.items.forgetCount++
	dropped := f.items.drop(func(m outcome.Missing, item *fetchResult) bool {
		own, _ := outcome.SplitCanonical(m.Canonical)
		return url == "" || own == url || item.url == url || item.reference == url
	})
	if dropped {
		f.rebuild()
	}
}

// fetchedItems contains the fetched definitions and those found not to exist. Each kind has its own limit, because
// clients may request arbitrary definitions.
type fetchedItems struct {
	found, absent boundedcache.Cache[outcome.Missing, *fetchResult]
	count         int       // number of results so far
	nextExpiry    time.Time // earliest expiration of an item
	forgetCount   int       // calls of Forget
}

// fetchResult is a result of Source.
type fetchResult struct {
	resource  jsontext.Value // nil: does not exist
	url       string
	reference string // type and ID
	sequence  int    // sequence number of the result
	expires   time.Time
	fetchedAt time.Time
}

// CacheUsage returns the number of definitions and their size in bytes of JSON.
func (f *FetchedDefinitions) CacheUsage() (definitions int, bytes int64) { return f.items.found.Size() }

// get returns an item, or nil.
func (t *fetchedItems) get(m outcome.Missing) *fetchResult {
	item, ok := t.found.Get(m)
	if !ok {
		item, _ = t.absent.Get(m)
	}
	return item
}

// put adds or replaces an item within the size limit. It reports whether the library contains definitions that are no
// longer stored: the replaced one, or evicted ones.
func (t *fetchedItems) put(m outcome.Missing, item *fetchResult, limit int64) (outdated bool) {
	before, _ := t.found.Size()
	t.found.MaxCost, t.absent.MaxEntries = limit, maxAbsent
	t.found.Delete(m)
	t.absent.Delete(m)
	if item.resource == nil {
		t.absent.Put(m, item, 1)
		after, _ := t.found.Size()
		return after < before
	}
	t.found.Put(m, item, int64(len(item.resource)))
	after, _ := t.found.Size()
	return after <= before
}

// drop removes the items that satisfy is, and reports whether the library contains any of them.
func (t *fetchedItems) drop(is func(m outcome.Missing, item *fetchResult) bool) bool {
	before, _ := t.found.Size()
	t.found.DeleteFunc(is)
	t.absent.DeleteFunc(is)
	after, _ := t.found.Size()
	return after < before
}

// each calls visit for all items.
func (t *fetchedItems) each(visit func(m outcome.Missing, item *fetchResult)) {
	t.drop(func(m outcome.Missing, item *fetchResult) bool { visit(m, item); return false })
}

// store stores a result of Source and adds it to the library.
func (f *FetchedDefinitions) store(m outcome.Missing, resource jsontext.Value) error {
	now := time.Now()
	f.items.count++
	item := &fetchResult{resource: resource, sequence: f.items.count, fetchedAt: now, expires: now.Add(cmp.Or(f.TTL, time.Hour)), reference: m.Kind + "/" + m.ID}
	if h, err := definitions.ParseSummary(resource); err == nil {
		item.url, item.reference = h.URL, h.Kind+"/"+h.ID
	}
	if resource == nil {
		item.expires = now.Add(cmp.Or(f.MissingTTL, time.Minute))
	}
	if resource != nil {
		more, err := f.layers.current.combine(resource)
		if err != nil {
			return fmt.Errorf("parsing %v: %w", m, err)
		}
		f.layers.current, f.layers.overlays = more, f.layers.overlays+1
	}
	if f.items.put(m, item, f.sizeLimit()) || f.layers.overlays > maxOverlays {
		f.rebuild()
	}
	if f.items.nextExpiry.IsZero() || item.expires.Before(f.items.nextExpiry) {
		f.items.nextExpiry = item.expires
	}
	return nil
}

// rebuild builds the library again from all stored definitions, which were parsed successfully before.
func (f *FetchedDefinitions) rebuild() {
	f.layers.current, f.layers.overlays = f.layers.base, 0
	var items []*fetchResult
	f.items.each(func(_ outcome.Missing, item *fetchResult) {
		if item.resource != nil {
			items = append(items, item)
		}
	})
	if len(items) == 0 {
		return
	}
	slices.SortFunc(items, func(a, b *fetchResult) int { return cmp.Compare(a.sequence, b.sequence) })
	var resources []jsontext.Value
	for _, item := range items {
		resources = append(resources, item.resource)
	}
	if l, err := f.layers.base.combine(resources...); err == nil {
		f.layers.current, f.layers.overlays = l, 1
	}
}

// request requests the latest version of a definition from Source.
func (f *FetchedDefinitions) request(ctx context.Context, m outcome.Missing) (jsontext.Value, error) {
	start := time.Now()
	found, err := f.Source.Definitions(ctx, m)
	if err != nil {
		return nil, err
	}
	resource, err := definitions.LatestOf(found, m)
	if err != nil || resource == nil {
		return nil, err
	}
	if limit := f.sizeLimit(); int64(len(resource)) > limit {
		return nil, &outcome.Error{Status: http.StatusUnprocessableEntity, Code: "too-costly",
			Text: fmt.Sprintf("%v is larger than the limit of %s for fetched definitions", m, fhirjson.FormatSize(limit))}
	}
	cmp.Or(f.Logger, definitions.DiscardLogger).InfoContext(ctx, "definition fetched", slog.String("definition", m.String()),
		slog.Int("bytes", len(resource)), slog.Duration("took", time.Since(start)))
	return resource, nil
}

// Renew starts to fetch expired definitions again in the background, as any use of the library does. Callers that serve
// responses from their own cache may not use the library for a long time.
func (f *FetchedDefinitions) Renew() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.beginRenewal()
}

// beginRenewal is like Renew, but with f.mu held.
func (f *FetchedDefinitions) beginRenewal() {
	if !f.isRenewing && !f.items.nextExpiry.IsZero() && !time.Now().Before(f.items.nextExpiry) {
		f.isRenewing = true
		go f.renew()
	}
}

// renew fetches expired definitions again. If the fetch fails, the old definition stays in use for a while.
func (f *FetchedDefinitions) renew() {
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.isRenewing, f.items.nextExpiry = false, time.Time{}
		f.items.each(func(_ outcome.Missing, item *fetchResult) {
			if f.items.nextExpiry.IsZero() || item.expires.Before(f.items.nextExpiry) {
				f.items.nextExpiry = item.expires
			}
		})
	}()
	for _, m := range f.expired() {
		forgetCount := f.forgetCount()
		resource, err := f.request(context.Background(), m)
		if err != nil {
			cmp.Or(f.Logger, definitions.DiscardLogger).Warn("refreshing definition failed", slog.String("definition", m.String()), slog.Any("error", err))
		}
		if old := f.replace(forgetCount, m, resource, err); old != nil && f.OnChange != nil {
			f.OnChange(old.url)
		}
	}
}

// expired returns the expired definitions. Definitions that did not exist are dropped, to be fetched on demand.
func (f *FetchedDefinitions) expired() (list []outcome.Missing) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	f.items.drop(func(m outcome.Missing, item *fetchResult) bool {
		if now.Before(item.expires) {
			return false
		}
		if item.resource != nil {
			list = append(list, m)
		}
		return item.resource == nil
	})
	return list
}

// replace updates a definition with a new result of Source, and returns the old definition if it differs.
func (f *FetchedDefinitions) replace(forgetCount int, m outcome.Missing, resource jsontext.Value, err error) (old *fetchResult) {
	f.mu.Lock()
	defer f.mu.Unlock()
	item := f.items.get(m)
	if item == nil || f.items.forgetCount != forgetCount {
		return nil // forgotten during the fetch, or the result may be older than a write
	}
	now := time.Now()
	switch {
	case err != nil && now.Sub(item.fetchedAt) < cmp.Or(f.TTL, time.Hour)+cmp.Or(f.MaxStale, 24*time.Hour):
		item.expires = now.Add(cmp.Or(f.MissingTTL, time.Minute))
		return nil
	case err != nil || resource == nil:
		f.items.found.Delete(m)
		f.rebuild()
		return item
	case bytes.Equal(resource, item.resource):
		item.fetchedAt, item.expires = now, now.Add(cmp.Or(f.TTL, time.Hour))
		return nil
	case f.store(m, resource) != nil: // invalid: the old definition stays
		item.expires = now.Add(cmp.Or(f.MissingTTL, time.Minute))
		return nil
	}
	return item
}
