package terminology

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
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
	item := f.answers.get(m)
	return item != nil && time.Now().Before(item.expires)
}

// fetch keeps what Source returns, unless something was forgotten meanwhile: then it may be from before a write, and Source
// is asked again.
func (f *Fetched) fetch(ctx context.Context, m outcome.Missing) error {
	if f.holds(m) {
		return nil
	}
	for range MaxFetches {
		forgets := f.forgotten()
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

// forgotten returns how often Forget was called.
func (f *Fetched) forgotten() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.answers.forgets
}

func (f *Fetched) keepUnless(forgets int, m outcome.Missing, resource jsontext.Value) (kept bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.answers.forgets != forgets {
		return false, nil
	}
	return true, f.keep(m, resource)
}

// Over returns a library with what has been fetched, and starts the renewal of expired definitions.
func (f *Fetched) Over(base *Library) *Library {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.layers.base != base {
		f.layers.base = base
		f.rebuild()
	}
	f.beginRenewal()
	return f.layers.current
}

// Forget drops all versions of a definition, as after a write; it is fetched again when it is next needed. The reference is
// a canonical, or type and id as in ValueSet/1; empty means all definitions.
func (f *Fetched) Forget(reference string) {
	url, _ := outcome.Split(reference)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answers.forgets++
	dropped := f.answers.drop(func(m outcome.Missing, item *fetched) bool {
		own, _ := outcome.Split(m.Canonical)
		return url == "" || own == url || item.url == url || item.reference == url
	})
	if dropped {
		f.rebuild()
	}
}
