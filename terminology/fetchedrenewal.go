package terminology

import (
	"bytes"
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
)

// Renew starts to fetch expired definitions again in the background, as every use of the library does. Callers that answer
// from their own cache may not use the library for long.
func (f *Fetched) Renew() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.beginRenewal()
}

// beginRenewal is Renew, with the lock held.
func (f *Fetched) beginRenewal() {
	if !f.renewing && len(f.answers.items) > 0 && !time.Now().Before(f.answers.due) {
		f.renewing = true
		go f.renew()
	}
}

// renew fetches expired definitions again. One that cannot be fetched stays in use for a while.
func (f *Fetched) renew() {
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.renewing = false
		f.answers.plan()
	}()
	for _, m := range f.overdue() {
		forgets := f.answers.forgets.Load()
		resource, err := f.ask(context.Background(), m)
		if err != nil {
			cmp.Or(f.Logger, definitions.NoLog).Warn("definition not fetched anew", slog.String("definition", m.String()), slog.Any("error", err))
		}
		if old := f.replace(forgets, m, resource, err); old != nil && f.Changed != nil {
			f.Changed(old.url)
		}
	}
}

// overdue returns the expired definitions, and drops those found not to exist: Source is asked again when they are needed.
func (f *Fetched) overdue() (list []outcome.Missing) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	for m, item := range f.answers.items {
		switch {
		case now.Before(item.expires):
		case item.resource == nil:
			f.answers.drop(m)
		default:
			list = append(list, m)
		}
	}
	return list
}

// replace updates a definition by a new answer of Source, and returns the old one if it has changed.
func (f *Fetched) replace(forgets int64, m outcome.Missing, resource jsontext.Value, err error) (old *fetched) {
	f.mu.Lock()
	defer f.mu.Unlock()
	item, ok := f.answers.items[m]
	if !ok || f.answers.forgets.Load() != forgets {
		return nil // forgotten meanwhile, or the answer may be from before a write
	}
	now := time.Now()
	switch {
	case err != nil && now.Sub(item.fetched) < cmp.Or(f.TTL, time.Hour)+cmp.Or(f.MaxStale, 24*time.Hour):
		item.expires = now.Add(cmp.Or(f.MissingTTL, time.Minute))
		return nil
	case err != nil || resource == nil:
		f.answers.drop(m)
		f.rebuild()
		return item
	case bytes.Equal(resource, item.resource):
		item.fetched, item.expires = now, now.Add(cmp.Or(f.TTL, time.Hour))
		return nil
	case f.keep(m, resource) != nil: // unreadable: the old one stays
		item.expires = now.Add(cmp.Or(f.MissingTTL, time.Minute))
		return nil
	}
	return item
}
