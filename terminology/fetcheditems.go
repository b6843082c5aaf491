package terminology

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/sync/singleflight"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/boundedcache"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
)

// fetchedItems are the definitions that were fetched, and those found not to exist. Each have their own bound, as anyone may
// ask for anything.
type fetchedItems struct {
	found, absent boundedcache.Cache[outcome.Missing, *fetched]
	count         int       // of the answers so far
	due           time.Time // when the next item expires
	forgets       int       // calls of Forget
}

// fetched is an answer of Source.
type fetched struct {
	resource  jsontext.Value // nil: there is none
	url       string
	reference string // type and id
	number    int    // of answers before it
	expires   time.Time
	fetched   time.Time
}

// Held returns how many definitions are held, and how many bytes of JSON they have.
func (f *Fetched) Held() (definitions int, bytes int64) { return f.answers.found.Held() }

// get returns an item, or nil.
func (t *fetchedItems) get(m outcome.Missing) *fetched {
	item, ok := t.found.Get(m)
	if !ok {
		item, _ = t.absent.Get(m)
	}
	return item
}

// put adds or replaces an item within a bound of bytes, and reports whether the library has what is not held any more: the
// old one, or what made room.
func (t *fetchedItems) put(m outcome.Missing, item *fetched, most int64) (outdated bool) {
	before, _ := t.found.Held()
	t.found.MaxCost, t.absent.MaxEntries = most, maxAbsent
	t.found.Delete(m)
	t.absent.Delete(m)
	if item.resource == nil {
		t.absent.Put(m, item, 1)
		after, _ := t.found.Held()
		return after < before
	}
	t.found.Put(m, item, int64(len(item.resource)))
	after, _ := t.found.Held()
	return after <= before
}

// drop removes the items for which is holds, and reports whether the library has any of them.
func (t *fetchedItems) drop(is func(m outcome.Missing, item *fetched) bool) bool {
	before, _ := t.found.Held()
	t.found.DeleteFunc(is)
	t.absent.DeleteFunc(is)
	after, _ := t.found.Held()
	return after < before
}

// each calls visit for all items.
func (t *fetchedItems) each(visit func(m outcome.Missing, item *fetched)) {
	t.drop(func(m outcome.Missing, item *fetched) bool { visit(m, item); return false })
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

// most is how many bytes are held.
func (f *Fetched) most() int64 { return cmp.Or(f.MaxBytes, 64<<20) }

const (
	maxAbsent  = 10_000 // definitions that do not exist
	maxStacked = 16     // overlays before they are made into one
)
