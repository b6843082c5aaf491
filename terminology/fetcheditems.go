package terminology

import (
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// fetchedItems are the definitions that were fetched, and those that were found not to be there.
type fetchedItems struct {
	items   map[Missing]*fetched
	order   []Missing // as they were fetched
	held    int64     // bytes of JSON
	due     time.Time // when one is next to be fetched anew
	forgets int       // how often Forget was called
}

// fetched is what Source said.
type fetched struct {
	resource  jsontext.Value // nil: there is none
	url       string
	reference string // type and id
	expires   time.Time
	fetched   time.Time
}

// put replaces or adds an item.
func (t *fetchedItems) put(m Missing, item *fetched) {
	if t.items == nil {
		t.items = make(map[Missing]*fetched)
	}
	t.drop(m)
	t.items[m] = item
	t.order = append(t.order, m)
	t.held += int64(len(item.resource))
}

// drop forgets an item, and reports whether the library has it.
func (t *fetchedItems) drop(m Missing) bool {
	item, ok := t.items[m]
	if !ok {
		return false
	}
	delete(t.items, m)
	for i, other := range t.order {
		if other == m {
			t.order = append(t.order[:i:i], t.order[i+1:]...)
			break
		}
	}
	t.held -= int64(len(item.resource))
	return item.resource != nil
}

// makeRoom drops the oldest items until the rest is within the bounds, and reports whether the library had any of them.
// Definitions and absences have bounds of their own, as anyone may ask for anything.
func (t *fetchedItems) makeRoom(most int64) (dropped bool) {
	for t.held > most {
		dropped = t.drop(t.first(func(item *fetched) bool { return item.resource != nil })) || dropped
	}
	for len(t.order) > maxHeld {
		dropped = t.drop(t.first(func(item *fetched) bool { return item.resource == nil })) || dropped
	}
	return dropped
}

// first returns what was asked for first, of those that count, or else of all.
func (t *fetchedItems) first(counts func(*fetched) bool) Missing {
	for _, m := range t.order {
		if counts(t.items[m]) {
			return m
		}
	}
	return t.order[0]
}

// plan sets when the next item is due to be fetched again.
func (t *fetchedItems) plan() {
	t.due = time.Time{}
	for _, item := range t.items {
		if t.due.IsZero() || item.expires.Before(t.due) {
			t.due = item.expires
		}
	}
}
