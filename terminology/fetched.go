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
	// Definitions returns the resources with the requested canonical or ID, as JSON and in any order. It returns an empty list
	// if there are none. If the error has the methods HTTPStatus, IssueType and Diagnostics, they determine the response to the
	// client. Otherwise, the response states that the definition is currently unavailable.
	Definitions(ctx context.Context, m outcome.MissingDefinition) ([]jsontext.Value, error)
}

// FetchedDefinitions fetches definitions from a [Source] on first use and combines them with those of the library. The latest
// version wins, regardless of its origin. Its fields must be set before the first use. It is then safe for concurrent use.
type FetchedDefinitions struct {
	// Source provides the definitions. Required.
	Source Source

	// MaxBytes is the maximum total size of fetched definitions, in bytes of JSON. They use about as much memory again. The
	// oldest definitions are evicted first. A definition that is larger on its own causes a too-costly error. Default: 64 MiB.
	MaxBytes int64

	// TTL is how long a definition stays fresh. The first use after that fetches it again in the background and continues with
	// the old definition. Default: 1 hour.
	TTL time.Duration

	// MissingTTL is the time until the next attempt if a definition does not exist or cannot be fetched. Default: 1 minute.
	MissingTTL time.Duration

	// MaxStale is how long an expired definition may be used after TTL if Source fails. Default: 24 hours.
	MaxStale time.Duration

	// OnChange is called with the canonical of a fetched definition after Source has changed or deleted it. Default: none.
	OnChange func(url string)

	// Logger receives fetches at info level and failed refreshes at warn level. Default: none.
	Logger *slog.Logger

	mu         sync.Mutex
	items      fetchedItems
	layers     fetchedLayers
	isRenewing bool
	flights    singleflight.Group
}

// fetchedLayers is a stack of libraries, each with more fetched definitions than the one below.
type fetchedLayers struct {
	base         *Library
	current      *Library
	overlayCount int // number of overlays between base and current
}

// MaxFetches is the maximum number of definitions fetched for one request.
const MaxFetches = 100

// sizeLimit returns the maximum total size of fetched definitions in bytes of JSON.
func (f *FetchedDefinitions) sizeLimit() int64 { return cmp.Or(f.MaxBytes, 64<<20) }

const (
	maxAbsent   = 10_000 // maximum number of definitions recorded as nonexistent
	maxOverlays = 16     // number of overlays that triggers merging them into one
)

// Complete fetches the missing definitions in list and returns a library that includes them.
func (f *FetchedDefinitions) Complete(ctx context.Context, list []outcome.MissingDefinition) (*Library, error) {
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

// fetchTarget returns the definition to fetch for a missing definition. For an implicit value set, this is the code system.
func fetchTarget(m outcome.MissingDefinition) outcome.MissingDefinition {
	if system, query, ok := strings.Cut(m.Canonical, "?fhir_vs"); ok && m.ResourceType == "ValueSet" {
		_, version := outcome.SplitCanonical(query)
		return outcome.MissingDefinition{ResourceType: "CodeSystem", Canonical: outcome.Canonical(system, version)}
	}
	return m
}

// fetchOnce fetches a definition once for all concurrent requests. The fetch continues if a request is canceled.
func (f *FetchedDefinitions) fetchOnce(ctx context.Context, m outcome.MissingDefinition) error {
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

func newFetchError(m outcome.MissingDefinition, err error) error {
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

// isFresh reports whether an unexpired result of Source is stored.
func (f *FetchedDefinitions) isFresh(m outcome.MissingDefinition) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	item := f.items.get(m)
	return item != nil && time.Now().Before(item.expiresAt)
}

// fetch requests a definition from Source and stores it. If Forget was called in the meantime, the result may be older than a
// write, so it is requested again.
func (f *FetchedDefinitions) fetch(ctx context.Context, m outcome.MissingDefinition) error {
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

// forgetCount returns how often Forget has been called.
func (f *FetchedDefinitions) forgetCount() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.items.forgetCount
}

func (f *FetchedDefinitions) storeUnlessForgotten(forgetCount int, m outcome.MissingDefinition, resource jsontext.Value) (stored bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.items.forgetCount != forgetCount {
		return false, nil
	}
	return true, f.store(m, resource)
}

// Overlay returns base with the fetched definitions. It refreshes expired definitions in the background.
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

// Forget drops all versions of a definition, e.g. after a write, so that it is fetched again on its next use. reference is a
// canonical, or a type and ID such as ValueSet/1. If it is empty, all definitions are dropped.
func (f *FetchedDefinitions) Forget(reference string) {
	url, _ := outcome.SplitCanonical(reference)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.items.forgetCount++
	dropped := f.items.drop(func(m outcome.MissingDefinition, item *fetchResult) bool {
		own, _ := outcome.SplitCanonical(m.Canonical)
		return url == "" || own == url || item.url == url || item.reference == url
	})
	if dropped {
		f.rebuild()
	}
}

// fetchedItems contains the fetched definitions and those found not to exist. Each kind has a separate limit, because clients
// may request arbitrary definitions.
type fetchedItems struct {
	found, absent boundedcache.Cache[outcome.MissingDefinition, *fetchResult]
	count         int       // number of results stored so far
	nextExpiry    time.Time // when the first item expires
	forgetCount   int       // number of calls to Forget
}

// fetchResult is a stored result of Source.
type fetchResult struct {
	resource  jsontext.Value // nil if the definition does not exist
	url       string
	reference string // type and ID
	sequence  int    // increases in the order in which results are stored
	expiresAt time.Time
	fetchedAt time.Time
}

// CacheUsage returns the number of fetched definitions and their total size in bytes of JSON.
func (f *FetchedDefinitions) CacheUsage() (definitions int, bytes int64) { return f.items.found.Size() }

// get returns the result for a definition, or nil.
func (t *fetchedItems) get(m outcome.MissingDefinition) *fetchResult {
	item, ok := t.found.Get(m)
	if !ok {
		item, _ = t.absent.Get(m)
	}
	return item
}

// put adds or replaces an item and evicts others beyond the size limit. It reports whether the library contains definitions
// that are no longer stored, because they were replaced or evicted.
func (t *fetchedItems) put(m outcome.MissingDefinition, item *fetchResult, limit int64) (outdated bool) {
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

// drop removes the items for which is returns true and reports whether the library contains any of them.
func (t *fetchedItems) drop(is func(m outcome.MissingDefinition, item *fetchResult) bool) bool {
	before, _ := t.found.Size()
	t.found.DeleteFunc(is)
	t.absent.DeleteFunc(is)
	after, _ := t.found.Size()
	return after < before
}

// each calls visit on every item.
func (t *fetchedItems) each(visit func(m outcome.MissingDefinition, item *fetchResult)) {
	t.drop(func(m outcome.MissingDefinition, item *fetchResult) bool { visit(m, item); return false })
}

// store stores a result of Source and adds the definition to the library.
func (f *FetchedDefinitions) store(m outcome.MissingDefinition, resource jsontext.Value) error {
	now := time.Now()
	f.items.count++
	item := &fetchResult{resource: resource, sequence: f.items.count, fetchedAt: now, expiresAt: now.Add(cmp.Or(f.TTL, time.Hour)), reference: m.ResourceType + "/" + m.ID}
	if h, err := definitions.ParseSummary(resource); err == nil {
		item.url, item.reference = h.URL, h.Kind+"/"+h.ID
	}
	if resource == nil {
		item.expiresAt = now.Add(cmp.Or(f.MissingTTL, time.Minute))
	}
	if resource != nil {
		more, err := f.layers.current.combine(resource)
		if err != nil {
			return fmt.Errorf("parsing %v: %w", m, err)
		}
		f.layers.current, f.layers.overlayCount = more, f.layers.overlayCount+1
	}
	if f.items.put(m, item, f.sizeLimit()) || f.layers.overlayCount > maxOverlays {
		f.rebuild()
	}
	if f.items.nextExpiry.IsZero() || item.expiresAt.Before(f.items.nextExpiry) {
		f.items.nextExpiry = item.expiresAt
	}
	return nil
}

// rebuild recreates the library from all stored definitions. All of them have been parsed successfully before.
func (f *FetchedDefinitions) rebuild() {
	f.layers.current, f.layers.overlayCount = f.layers.base, 0
	var items []*fetchResult
	f.items.each(func(_ outcome.MissingDefinition, item *fetchResult) {
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
		f.layers.current, f.layers.overlayCount = l, 1
	}
}

// request requests a definition from Source and returns its latest version, or nil if it does not exist.
func (f *FetchedDefinitions) request(ctx context.Context, m outcome.MissingDefinition) (jsontext.Value, error) {
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

// Renew refreshes expired definitions in the background, as any use of the library does. It is for callers that serve responses
// from a cache and may not use the library for a long time.
func (f *FetchedDefinitions) Renew() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.beginRenewal()
}

// beginRenewal is like Renew. The caller must hold f.mu.
func (f *FetchedDefinitions) beginRenewal() {
	if !f.isRenewing && !f.items.nextExpiry.IsZero() && !time.Now().Before(f.items.nextExpiry) {
		f.isRenewing = true
		go f.renew()
	}
}

// renew fetches expired definitions again. If a fetch fails, the old definition remains in use for up to MaxStale.
func (f *FetchedDefinitions) renew() {
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.isRenewing, f.items.nextExpiry = false, time.Time{}
		f.items.each(func(_ outcome.MissingDefinition, item *fetchResult) {
			if f.items.nextExpiry.IsZero() || item.expiresAt.Before(f.items.nextExpiry) {
				f.items.nextExpiry = item.expiresAt
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

// expired returns the expired definitions. It drops expired records of nonexistent definitions; those are fetched on demand.
func (f *FetchedDefinitions) expired() (list []outcome.MissingDefinition) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	f.items.drop(func(m outcome.MissingDefinition, item *fetchResult) bool {
		if now.Before(item.expiresAt) {
			return false
		}
		if item.resource != nil {
			list = append(list, m)
		}
		return item.resource == nil
	})
	return list
}

// replace updates a definition with a new result of Source, and returns the old one if it was changed or removed.
func (f *FetchedDefinitions) replace(forgetCount int, m outcome.MissingDefinition, resource jsontext.Value, err error) (old *fetchResult) {
	f.mu.Lock()
	defer f.mu.Unlock()
	item := f.items.get(m)
	if item == nil || f.items.forgetCount != forgetCount {
		return nil // the definition was dropped during the fetch, or the result may be older than a write
	}
	now := time.Now()
	switch {
	case err != nil && now.Sub(item.fetchedAt) < cmp.Or(f.TTL, time.Hour)+cmp.Or(f.MaxStale, 24*time.Hour):
		item.expiresAt = now.Add(cmp.Or(f.MissingTTL, time.Minute))
		return nil
	case err != nil || resource == nil:
		f.items.found.Delete(m)
		f.rebuild()
		return item
	case bytes.Equal(resource, item.resource):
		item.fetchedAt, item.expiresAt = now, now.Add(cmp.Or(f.TTL, time.Hour))
		return nil
	case f.store(m, resource) != nil: // resource is invalid: keep the old definition
		item.expiresAt = now.Add(cmp.Or(f.MissingTTL, time.Minute))
		return nil
	}
	return item
}
