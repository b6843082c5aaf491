package terminology

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
)

// fetchedItems are the definitions that were fetched, and those found not to exist.
type fetchedItems struct {
	items   map[outcome.Missing]*fetched
	order   []outcome.Missing // as they were fetched
	held    int64             // bytes of JSON
	due     time.Time         // when the next item expires
	forgets atomic.Int64      // calls of Forget
}

// fetched is an answer of Source.
type fetched struct {
	resource  jsontext.Value // nil: there is none
	url       string
	reference string // type and id
	expires   time.Time
	fetched   time.Time
}

// Held returns how many definitions are held, and how many bytes of JSON they have.
func (f *Fetched) Held() (definitions int, bytes int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, item := range f.answers.items {
		if item.resource != nil {
			definitions++
		}
	}
	return definitions, f.answers.held
}

// put adds or replaces an item, and reports whether the library has the old one.
func (t *fetchedItems) put(m outcome.Missing, item *fetched) (replaced bool) {
	if t.items == nil {
		t.items = make(map[outcome.Missing]*fetched)
	}
	replaced = t.drop(m)
	t.items[m] = item
	t.order = append(t.order, m)
	t.held += int64(len(item.resource))
	return replaced
}

// drop removes an item, and reports whether the library has it.
func (t *fetchedItems) drop(m outcome.Missing) bool {
	item, ok := t.items[m]
	if !ok {
		return false
	}
	delete(t.items, m)
	t.order = slices.DeleteFunc(t.order, func(other outcome.Missing) bool { return other == m })
	t.held -= int64(len(item.resource))
	return item.resource != nil
}

// makeRoom drops the oldest items until the rest is within the bounds, and reports whether the library has any of them.
// Definitions and absences have separate bounds, as anyone may ask for anything.
func (t *fetchedItems) makeRoom(most int64) (dropped bool) {
	for t.held > most {
		dropped = t.drop(t.first(func(item *fetched) bool { return item.resource != nil })) || dropped
	}
	for len(t.order) > maxHeld {
		dropped = t.drop(t.first(func(item *fetched) bool { return item.resource == nil })) || dropped
	}
	return dropped
}

// first returns the oldest item that counts, or else the oldest of all.
func (t *fetchedItems) first(counts func(*fetched) bool) outcome.Missing {
	return t.order[max(0, slices.IndexFunc(t.order, func(m outcome.Missing) bool { return counts(t.items[m]) }))]
}

// plan sets when the next item expires.
func (t *fetchedItems) plan() {
	t.due = time.Time{}
	for _, item := range t.items {
		if t.due.IsZero() || item.expires.Before(t.due) {
			t.due = item.expires
		}
	}
}
