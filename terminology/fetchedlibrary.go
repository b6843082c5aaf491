package terminology

import (
	"cmp"
	"fmt"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
)

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

// keep stores an answer of Source, and adds it to the library.
func (f *Fetched) keep(m outcome.Missing, resource jsontext.Value) error {
	now := time.Now()
	item := &fetched{resource: resource, fetched: now, expires: now.Add(cmp.Or(f.TTL, time.Hour)), reference: m.Kind + "/" + m.ID}
	if h, err := definitions.HeadOf(resource); err == nil {
		item.url, item.reference = h.URL, h.Kind+"/"+h.ID
	}
	if resource == nil {
		item.expires = now.Add(cmp.Or(f.MissingTTL, time.Minute))
	}
	if resource != nil {
		more, err := f.layers.current.Beside(resource)
		if err != nil {
			return fmt.Errorf("%v cannot be read: %w", m, err)
		}
		f.layers.current, f.layers.stacked = more, f.layers.stacked+1
	}
	if f.answers.put(m, item) || f.answers.makeRoom(cmp.Or(f.MaxBytes, defaultMaxFetched)) || f.layers.stacked > maxStacked {
		f.rebuild()
	}
	if f.answers.due.IsZero() || item.expires.Before(f.answers.due) {
		f.answers.due = item.expires
	}
	return nil
}

// rebuild makes the library again from all that is held, which has been read before without an error.
func (f *Fetched) rebuild() {
	f.layers.current, f.layers.stacked = f.layers.base, 0
	var resources []jsontext.Value
	for _, m := range f.answers.order {
		if resource := f.answers.items[m].resource; resource != nil {
			resources = append(resources, resource)
		}
	}
	if len(resources) == 0 {
		return
	}
	if l, err := f.layers.base.Beside(resources...); err == nil {
		f.layers.current, f.layers.stacked = l, 1
	}
}

// Forget drops all versions of a definition, as after a write; it is fetched again when it is next needed. The reference is
// a canonical, or type and id as in ValueSet/1; empty means all definitions.
func (f *Fetched) Forget(reference string) {
	url, _ := outcome.Split(reference)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answers.forgets.Add(1)
	dropped := false
	for m, item := range f.answers.items {
		own, _ := outcome.Split(m.Canonical)
		if url == "" || own == url || item.url == url || item.reference == url {
			dropped = f.answers.drop(m) || dropped
		}
	}
	if dropped {
		f.rebuild()
	}
}
