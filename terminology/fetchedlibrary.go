package terminology

import (
	"cmp"
	"fmt"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// over returns a library combined with what has been fetched, and starts the renewal of what is outdated.
func (f *Fetched) over(base *Library) *Library {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.base != base {
		f.base = base
		f.rebuild()
	}
	f.beginRenewal()
	return f.current
}

// keep stores what Source returned, and adds it to the library.
func (f *Fetched) keep(m Missing, resource jsontext.Value) error {
	now := time.Now()
	item := &fetched{resource: resource, fetched: now, expires: now.Add(cmp.Or(f.TTL, time.Hour)), reference: m.Kind + "/" + m.ID}
	if h, err := headOf(resource); err == nil {
		item.url, item.reference = h.url, h.kind+"/"+h.id
	}
	if resource == nil {
		item.expires = now.Add(cmp.Or(f.MissingTTL, time.Minute))
	}
	old := f.items[m]
	changed := old != nil && old.resource != nil
	if resource != nil {
		more, err := f.current.combine([]jsontext.Value{resource})
		if err != nil {
			return fmt.Errorf("%v cannot be read: %w", m, err)
		}
		f.current, f.stacked = more, f.stacked+1
	}
	f.put(m, item)
	if changed || f.makeRoom(cmp.Or(f.MaxBytes, defaultMaxFetched)) || f.stacked > maxStacked {
		f.rebuild()
	}
	if f.due.IsZero() || item.expires.Before(f.due) {
		f.due = item.expires
	}
	return nil
}

// rebuild makes the library again from all that is held. Definitions that cannot be read do not occur: they have been
// read before.
func (f *Fetched) rebuild() {
	f.current, f.stacked = f.base, 0
	var resources []jsontext.Value
	for _, m := range f.order {
		if resource := f.items[m].resource; resource != nil {
			resources = append(resources, resource)
		}
	}
	if len(resources) == 0 {
		return
	}
	if l, err := f.base.combine(resources); err == nil {
		f.current, f.stacked = l, 1
	}
}

// Forget drops a definition, in all versions, as after a write; it is fetched again when it is next needed. The
// reference is a canonical, or type and id as in ValueSet/1; empty means all definitions.
func (f *Fetched) Forget(reference string) {
	url, _ := splitCanonical(reference)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.forgets++
	dropped := false
	for m, item := range f.items {
		own, _ := splitCanonical(m.Canonical)
		if url == "" || own == url || item.url == url || item.reference == url {
			dropped = f.drop(m) || dropped
		}
	}
	if dropped {
		f.rebuild()
	}
}
