package terminology

import (
	"bytes"
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// Renew starts to fetch outdated definitions again, in the background, as every use of the library does. It is for
// callers that answer from their own cache and may not use the library for long.
func (f *Fetched) Renew() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.beginRenewal()
}

// beginRenewal is Renew, with the lock held.
func (f *Fetched) beginRenewal() {
	if !f.renewing && len(f.items) > 0 && !time.Now().Before(f.due) {
		f.renewing = true
		go f.renew()
	}
}

// renew fetches outdated definitions again. One that cannot be fetched stays in use for a while.
func (f *Fetched) renew() {
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.renewing = false
		f.plan()
	}()
	for _, m := range f.overdue() {
		f.mu.Lock()
		forgets := f.forgets
		f.mu.Unlock()
		resource, err := f.ask(context.Background(), m)
		if err != nil {
			f.logger().Warn("definition not fetched anew", slog.String("definition", m.String()), slog.Any("error", err))
		}
		if old := f.replace(forgets, m, resource, err); old != nil && f.Changed != nil {
			f.Changed(old.url)
		}
	}
}

// overdue returns the outdated definitions, and forgets those that were not found: they are asked for again when they
// are needed.
func (f *Fetched) overdue() (list []Missing) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	for m, item := range f.items {
		switch {
		case now.Before(item.expires):
		case item.resource == nil:
			f.drop(m)
		default:
			list = append(list, m)
		}
	}
	return list
}

// replace takes over what Source said of a definition that is held, and returns the old one if it is another.
func (f *Fetched) replace(forgets int, m Missing, resource jsontext.Value, err error) (old *fetched) {
	f.mu.Lock()
	defer f.mu.Unlock()
	item, ok := f.items[m]
	if !ok || f.forgets != forgets {
		return nil // forgotten meanwhile, or what Source said may be from before a write
	}
	now := time.Now()
	switch {
	case err != nil && now.Sub(item.fetched) < cmp.Or(f.TTL, time.Hour)+cmp.Or(f.MaxStale, 24*time.Hour):
		item.expires = now.Add(cmp.Or(f.MissingTTL, time.Minute))
		return nil
	case err != nil || resource == nil:
		f.drop(m)
		f.rebuild()
		return item
	case bytes.Equal(resource, item.resource):
		item.fetched, item.expires = now, now.Add(cmp.Or(f.TTL, time.Hour))
		return nil
	case f.keep(m, resource) != nil: // it cannot be read, and the old one stays
		item.expires = now.Add(cmp.Or(f.MissingTTL, time.Minute))
		return nil
	}
	return item
}
