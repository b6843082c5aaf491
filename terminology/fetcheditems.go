package terminology

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/sync/singleflight"

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

// MaxFetches is how many definitions are fetched for one request.
const MaxFetches = 100

const (
	defaultMaxFetched = 64 << 20 // bytes held
	maxHeld           = 10_000   // definitions, with those that do not exist
	maxStacked        = 16       // overlays before they are made into one
)
