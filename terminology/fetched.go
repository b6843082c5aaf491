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

	"github.com/caddy-fhir/caddy-fhir/terminology/fhirjson"
)

// Source is where definitions are fetched from that are not loaded.
type Source interface {
	// Definitions returns the resources, in JSON, that have the canonical, in any order; none, without an
	// error, where there is none. An error may have the methods HTTPStatus, IssueType and Diagnostics: the
	// client is told what they return, and else that the definition cannot be had now.
	Definitions(ctx context.Context, m Missing) ([]jsontext.Value, error)
}

// Fetched fetches definitions from a [Source] when they are first needed, and holds them beside those of the
// library: of several versions of one the latest counts, wherever it is from. Its fields are set before it is
// first used. It may be used by any number of goroutines.
type Fetched struct {
	// Source is asked. Required.
	Source Source

	// MaxBytes is how much is held, in bytes of JSON; in memory that is about as much again. When there is no
	// room, what was fetched first is let go. A larger definition is too costly. Default: 64 MiB.
	MaxBytes int64

	// TTL is for how long a definition is good. After that it is fetched anew when it is next needed,
	// while the old one is used until the new one is there. Default: 1 hour.
	TTL time.Duration

	// MissingTTL is for how long it is remembered that a definition is not there, or could not be fetched
	// anew. Default: 1 minute.
	MissingTTL time.Duration

	// MaxStale is for how long after TTL a definition is used that cannot be fetched anew, as long as Source
	// fails. Default: 24 hours.
	MaxStale time.Duration

	// Changed is told the canonical of a definition that was fetched anew and is another one now, or is no more: what
	// was made of it is outdated. Default: nobody is told.
	Changed func(url string)

	// Logger is told, at info level, what was fetched, and at warn level what could not be fetched anew.
	// Default: none.
	Logger *slog.Logger

	mu sync.Mutex
	fetchedItems
	fetchedLayers
	renewing bool
	flights  singleflight.Group
}

// fetchedLayers are the libraries with what was fetched: each lies over the one before.
type fetchedLayers struct {
	base    *Library // that current is made of
	current *Library
	stacked int // overlays between base and current
}

// maxFetches bounds how many definitions are fetched for one request.
const maxFetches = 100

// maxHeld bounds how many definitions are held, those that are not there among them.
const maxHeld = 10_000

// maxStacked is from how many overlays on all are made into one.
const maxStacked = 16

// current returns the library that a request is answered from.
func (h *Handler) current() *Library {
	l := h.Library
	if h.Current != nil {
		l = h.Current()
	}
	if h.Fetched != nil {
		l = h.Fetched.over(l)
	}
	return l
}

// fetching tries an operation, and again after fetching what it lacked, as long as there is more to fetch. The request
// gives up its turn meanwhile.
func fetching[T any](o *operation, l *Library, try func(*Library) (T, []Missing, error)) (result T, err error) {
	result, missed, err := try(l)
	for round := 0; o.handler.Fetched != nil && len(missed) > 0 && round < maxFetches; round++ {
		o.budget.rest()
		more, failure := o.handler.Fetched.complete(o.Context(), missed)
		if failure != nil {
			return *new(T), failure
		}
		if more == l {
			break
		}
		l = more
		result, missed, err = try(l)
	}
	return result, err
}

// missingIn returns the definitions that an error says are missing and that have not been fetched yet.
func missingIn(err error) []Missing {
	if err == nil {
		return nil
	}
	if failed, ok := errors.AsType[*Error](err); ok && failed.Provisional == nil {
		return failed.Missing
	}
	return nil
}

// complete fetches what is missing, and returns the current library.
func (f *Fetched) complete(ctx context.Context, list []Missing) (*Library, error) {
	for _, m := range list {
		if m = m.source(); f.holds(m) || strings.HasPrefix(m.Canonical, "#") || m.Canonical+m.ID == "" {
			continue
		}
		if err := f.await(ctx, m); err != nil {
			return nil, unfetched(m, err)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.current, nil
}

// source returns the definition to fetch for one that is missing: for an implicit value set, its code system.
func (m Missing) source() Missing {
	if system, query, ok := strings.Cut(m.Canonical, "?fhir_vs"); ok && m.Kind == "ValueSet" {
		_, version := splitCanonical(query)
		return Missing{Kind: "CodeSystem", Canonical: canonical(system, version)}
	}
	return m
}

// missingSystems returns the code systems of codings that are not here with their concepts.
func (t *systemTable) missingSystems(codings []Coding) (list []Missing) {
	for i := range codings {
		c := &codings[i]
		index := t.codeSystem(c.System, c.Version)
		if c.System != "" && (index == none || !t.codeSystems[index].content.hasConcepts()) {
			list = append(list, missing("CodeSystem", c.System, c.Version)...)
		}
	}
	return list
}

// await fetches a definition once for all requests that need it now. It goes on if the first of them is cancelled.
func (f *Fetched) await(ctx context.Context, m Missing) error {
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

// unfetched returns the error for a definition that could not be fetched.
func unfetched(m Missing, err error) error {
	if own, ok := errors.AsType[*Error](err); ok {
		return own
	}
	var told interface {
		HTTPStatus() int
		IssueType() string
		Diagnostics() string
	}
	if errors.As(err, &told) {
		return &Error{Status: told.HTTPStatus(), Code: told.IssueType(), Text: m.String() + " is needed: " + told.Diagnostics(), Err: err}
	}
	return &Error{Status: http.StatusBadGateway, Code: "transient", Text: m.String() + " cannot be fetched now; try again later", Err: err}
}

// holds reports whether Source has been asked for a definition.
func (f *Fetched) holds(m Missing) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	item, ok := f.items[m]
	return ok && time.Now().Before(item.expires)
}

// fetch asks Source for a definition, and keeps what it says.
func (f *Fetched) fetch(ctx context.Context, m Missing) error {
	if f.holds(m) {
		return nil
	}
	for range maxFetches {
		f.mu.Lock()
		forgets := f.forgets
		f.mu.Unlock()
		resource, err := f.ask(ctx, m)
		if err != nil {
			return err
		}
		if kept, err := f.keepUnless(forgets, m, resource); kept || err != nil {
			return err
		}
	}
	return errUnsteady
}

// errUnsteady is the error for a definition that was forgotten whenever it was being fetched.
var errUnsteady = errors.New("definitions change all the time")

// keepUnless keeps what Source returned, unless something was forgotten meanwhile: it may be from before a write.
func (f *Fetched) keepUnless(forgets int, m Missing, resource jsontext.Value) (kept bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.forgets != forgets {
		return false, nil
	}
	return true, f.keep(m, resource)
}

// ask asks Source for a definition, and chooses the latest version.
func (f *Fetched) ask(ctx context.Context, m Missing) (jsontext.Value, error) {
	start := time.Now()
	found, err := f.Source.Definitions(ctx, m)
	if err != nil {
		return nil, err
	}
	resource, err := latestOf(found, m)
	if err != nil || resource == nil {
		return nil, err
	}
	if limit := cmp.Or(f.MaxBytes, defaultMaxFetched); int64(len(resource)) > limit {
		return nil, &Error{Status: http.StatusUnprocessableEntity, Code: "too-costly",
			Text: fmt.Sprintf("%v is larger than the %s that may be fetched", m, fhirjson.SizeText(limit))}
	}
	f.logger().InfoContext(ctx, "definition fetched", slog.String("definition", m.String()),
		slog.Int("bytes", len(resource)), slog.Duration("took", time.Since(start)))
	return resource, nil
}

func (f *Fetched) logger() *slog.Logger {
	if f.Logger == nil {
		return slog.New(slog.DiscardHandler)
	}
	return f.Logger
}

// defaultMaxFetched is how much is held of what was fetched.
const defaultMaxFetched = 64 << 20
