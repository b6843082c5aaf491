package terminology

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/sync/singleflight"

	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/fhirjson"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
)

// Source has definitions that are not loaded.
type Source interface {
	// Definitions returns the resources in JSON that have the canonical, in any order, or none. The client is told what
	// the methods HTTPStatus, IssueType and Diagnostics of an error return; without them, that the definition is not
	// available now.
	Definitions(ctx context.Context, m outcome.Missing) ([]jsontext.Value, error)
}

// Fetched fetches definitions from a [Source] when they are first needed, and holds them beside those of the library: of
// several versions the latest counts, wherever it is from. It is safe for concurrent use, once its fields are set.
type Fetched struct {
	// Source is required.
	Source Source

	// MaxBytes bounds what is held, in bytes of JSON; it takes about as much memory again. When full, the first fetched is
	// dropped. A larger definition is too costly. Default: 64 MiB.
	MaxBytes int64

	// TTL is how long a definition is fresh. Then the next use starts to fetch it again, and goes on with the old one.
	// Default: 1 hour.
	TTL time.Duration

	// MissingTTL is the time before another attempt if a definition does not exist or cannot be fetched again. Default:
	// 1 minute.
	MissingTTL time.Duration

	// MaxStale is how long after TTL a definition is used while Source fails. Default: 24 hours.
	MaxStale time.Duration

	// Changed is called with the canonical of a definition that has changed or gone since it was fetched. Default: none.
	Changed func(url string)

	// Logger logs at info level what is fetched, and at warn level what cannot be fetched again. Default: none.
	Logger *slog.Logger

	mu       sync.Mutex
	answers  fetchedItems
	layers   fetchedLayers
	renewing bool
	flights  singleflight.Group
}

// fetchedLayers is a stack of libraries, each with more of what was fetched.
type fetchedLayers struct {
	base    *Library
	current *Library
	stacked int // overlays between base and current
}

const (
	MaxFetches        = 100      // for one request
	defaultMaxFetched = 64 << 20 // bytes held
	maxHeld           = 10_000   // definitions, with those that do not exist
	maxStacked        = 16       // overlays before they are made into one
)

// Complete fetches what is missing, and returns the library with it.
func (f *Fetched) Complete(ctx context.Context, list []outcome.Missing) (*Library, error) {
	for _, m := range list {
		if m = sourceOf(m); f.holds(m) || strings.HasPrefix(m.Canonical, "#") || m.Canonical+m.ID == "" {
			continue
		}
		if err := f.await(ctx, m); err != nil {
			return nil, unfetched(m, err)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.layers.current, nil
}

// sourceOf returns the definition to fetch: of an implicit value set, the code system.
func sourceOf(m outcome.Missing) outcome.Missing {
	if system, query, ok := strings.Cut(m.Canonical, "?fhir_vs"); ok && m.Kind == "ValueSet" {
		_, version := outcome.Split(query)
		return outcome.Missing{Kind: "CodeSystem", Canonical: outcome.Canonical(system, version)}
	}
	return m
}

// await fetches a definition once for all requests that need it now, even if the first of them is cancelled.
func (f *Fetched) await(ctx context.Context, m outcome.Missing) error {
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

func unfetched(m outcome.Missing, err error) error {
	if own, ok := errors.AsType[*outcome.Error](err); ok {
		return own
	}
	var told interface {
		HTTPStatus() int
		IssueType() string
		Diagnostics() string
	}
	if errors.As(err, &told) {
		return &outcome.Error{Status: told.HTTPStatus(), Code: told.IssueType(), Text: m.String() + " is needed: " + told.Diagnostics(), Err: err}
	}
	return &outcome.Error{Status: http.StatusBadGateway, Code: "transient", Text: m.String() + " cannot be fetched now; try again later", Err: err}
}

// holds reports whether the answer of Source is still good.
func (f *Fetched) holds(m outcome.Missing) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	item, ok := f.answers.items[m]
	return ok && time.Now().Before(item.expires)
}

// fetch keeps what Source returns, unless something was forgotten meanwhile: then it may be from before a write, and Source
// is asked again.
func (f *Fetched) fetch(ctx context.Context, m outcome.Missing) error {
	if f.holds(m) {
		return nil
	}
	for range MaxFetches {
		forgets := f.answers.forgets.Load()
		resource, err := f.ask(ctx, m)
		if err != nil {
			return err
		}
		if kept, err := f.keepUnless(forgets, m, resource); kept || err != nil {
			return err
		}
	}
	return errors.New("definitions change all the time")
}

func (f *Fetched) keepUnless(forgets int64, m outcome.Missing, resource jsontext.Value) (kept bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.answers.forgets.Load() != forgets {
		return false, nil
	}
	return true, f.keep(m, resource)
}

// ask asks Source for the latest version of a definition.
func (f *Fetched) ask(ctx context.Context, m outcome.Missing) (jsontext.Value, error) {
	start := time.Now()
	found, err := f.Source.Definitions(ctx, m)
	if err != nil {
		return nil, err
	}
	resource, err := definitions.LatestOf(found, m)
	if err != nil || resource == nil {
		return nil, err
	}
	if limit := cmp.Or(f.MaxBytes, defaultMaxFetched); int64(len(resource)) > limit {
		return nil, &outcome.Error{Status: http.StatusUnprocessableEntity, Code: "too-costly",
			Text: fmt.Sprintf("%v is larger than the %s that may be fetched", m, fhirjson.SizeText(limit))}
	}
	cmp.Or(f.Logger, definitions.NoLog).InfoContext(ctx, "definition fetched", slog.String("definition", m.String()),
		slog.Int("bytes", len(resource)), slog.Duration("took", time.Since(start)))
	return resource, nil
}
