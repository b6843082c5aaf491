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
	if !f.renewing && !f.answers.due.IsZero() && !time.Now().Before(f.answers.due) {
		f.renewing = true
		go f.renew()
	}
}

// renew fetches expired definitions again. One that cannot be fetched stays in use for a while.
func (f *Fetched) renew() {
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.renewing, f.answers.due = false, time.Time{}
		f.answers.each(func(_ outcome.Missing, item *fetched) {
			if f.answers.due.IsZero() || item.expires.Before(f.answers.due) {
				f.answers.due = item.expires
			}
		})
	}()
	for _, m := range f.overdue() {
		forgets := f.forgotten()
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
	f.answers.drop(func(m outcome.Missing, item *fetched) bool {
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

// replace updates a definition by a new answer of Source, and returns the old one if it has changed.
func (f *Fetched) replace(forgets int, m outcome.Missing, resource jsontext.Value, err error) (old *fetched) {
	f.mu.Lock()
	defer f.mu.Unlock()
	item := f.answers.get(m)
	if item == nil || f.answers.forgets != forgets {
		return nil // forgotten meanwhile, or the answer may be from before a write
	}
	now := time.Now()
	switch {
	case err != nil && now.Sub(item.fetched) < cmp.Or(f.TTL, time.Hour)+cmp.Or(f.MaxStale, 24*time.Hour):
		item.expires = now.Add(cmp.Or(f.MissingTTL, time.Minute))
		return nil
	case err != nil || resource == nil:
		f.answers.found.Delete(m)
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
