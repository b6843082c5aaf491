package dispatch

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/cache"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
	"github.com/caddy-fhir/caddy-fhir/terminology/remote"
)

// StateOptions are those of a [State].
type StateOptions struct {
	// Cache stores answers. Default: nil, none are stored.
	Cache *cache.Cache

	// Routes choose the terminology server to ask. Default: nil, there is none.
	Routes *remote.Routes

	// Wholes are expansions that are fetched whole from terminology servers. Default: nil, none is.
	Wholes *remote.Wholes

	// Fetched holds definitions of the server behind the next handler. [NewState] sets its Source and Changed.
	// Default: nil, none are fetched.
	Fetched *terminology.Fetched

	// Backend sends requests to the next handler. [NewState] sets its Serve and Backoff. Required with Fetched.
	Backend remote.Handler

	// Announce broadcasts to the peers that a definition of the next handler has changed, which was found when it was fetched again.
	// Default: no broadcast.
	Announce func(Ending)
}

// State outlives a [Dispatcher]: stored responses, fetched definitions, and the servers to ask. Make one with
// [NewState]. It is safe for concurrent use.
type State struct {
	cache   *cache.Cache // nil: no answers are stored
	routes  *remote.Routes
	wholes  *remote.Wholes // nil: none is fetched
	backend *backend       // nil: no definitions are fetched
	backoff remote.Backoff // of the next handler

	announce func(Ending) // nil: no broadcast
}

// NewState returns a state.
func NewState(o StateOptions) *State {
	s := &State{cache: o.Cache, routes: o.Routes, wholes: o.Wholes, announce: o.Announce}
	if o.Fetched != nil {
		s.backend = newBackend(o.Fetched, o.Backend, &s.backoff)
		s.backend.fetched.Changed = s.changed
	}
	return s
}

// Fetched returns the definitions that were fetched; nil: none are.
func (s *State) Fetched() *terminology.Fetched {
	if s.backend == nil {
		return nil
	}
	return s.backend.fetched
}

// Statistics are those of one state, or the sum of several. They count from the start of the process.
type Statistics struct {
	Hits        uint64 `json:"hits"`         // requests answered with a stored response
	Misses      uint64 `json:"misses"`       // all others
	Stale       uint64 `json:"stale"`        // requests answered with a stale response
	Evictions   uint64 `json:"evictions"`    // of responses, to make room for others
	Entries     int    `json:"entries"`      // stored responses
	Bytes       int64  `json:"bytes"`        // memory that they take
	Pulled      int    `json:"pulled"`       // expansions that were fetched whole from an upstream
	PulledBytes int64  `json:"pulled_bytes"` // memory that they take, beside Bytes
}

// Plus returns the sum.
func (s Statistics) Plus(t Statistics) Statistics {
	return Statistics{
		s.Hits + t.Hits, s.Misses + t.Misses, s.Stale + t.Stale, s.Evictions + t.Evictions,
		s.Entries + t.Entries, s.Bytes + t.Bytes, s.Pulled + t.Pulled, s.PulledBytes + t.PulledBytes,
	}
}

// Statistics returns the state's own.
func (s *State) Statistics() (sum Statistics) {
	sum.Pulled, sum.PulledBytes = s.wholes.Held()
	if s.cache != nil {
		c := s.cache.Stats()
		sum.Hits, sum.Misses, sum.Stale, sum.Evictions = c.Hits, c.Misses, c.Stale, c.Evictions
		sum.Entries, sum.Bytes = int(c.Entries), c.Bytes
	}
	return sum
}

// backend is the FHIR server behind the next handler, as a source of definitions. It is asked without the credentials
// of any user.
type backend struct {
	fetched *terminology.Fetched
	server  remote.Handler
	next    atomic.Pointer[NextHandler]

	mu         sync.Mutex
	references map[string]string // canonicals of what was fetched, by type and id
	lost       bool              // there may be responses made of other definitions
}

func newBackend(fetched *terminology.Fetched, handler remote.Handler, backoff *remote.Backoff) *backend {
	b := &backend{fetched: fetched, references: map[string]string{}}
	handler.Backoff = backoff
	handler.Serve = func(w http.ResponseWriter, r *http.Request) error { return (*b.next.Load()).ServeHTTP(w, r) }
	b.server = handler
	fetched.Source = b
	return b
}

// learn stores the next handler, which comes with each request.
func (b *backend) learn(server Server, r *http.Request, next NextHandler) {
	handler := server.Background(r, next)
	b.next.Store(&handler)
	b.fetched.Renew()
}

const maxReferences = 100_000

// Definitions implements terminology.Source. It notes the id of each definition, so that a write to the id can be matched
// with the definition it replaces.
func (b *backend) Definitions(ctx context.Context, m outcome.Missing) ([]jsontext.Value, error) {
	list, err := b.server.Definitions(ctx, m)
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, resource := range list {
		switch d, ok := readHead(resource); {
		case !ok:
		case len(b.references) < maxReferences:
			b.references[d.reference()] = d.URL
		default:
			b.lost = true
		}
	}
	return list, err
}

// begin drops the references. What is fetched from then on is noted even before the definitions are forgotten.
func (b *backend) begin() {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.references)
	b.lost = false
}

// forget drops a definition, by its canonical or by type and id; all if name is empty. For a type and id it returns the
// canonical, and false if that may have been lost.
func (b *backend) forget(name string) (url string, known bool) {
	if b == nil {
		return "", true
	}
	if name == "" {
		b.begin()
	}
	b.fetched.Forget(name)
	if !strings.Contains(name, "/") {
		return "", true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	url, known = b.references[name]
	return url, known || !b.lost
}

var _ terminology.Source = (*backend)(nil)

var definitionTypes = []string{"ValueSet", "CodeSystem", "ConceptMap"}

type resourceHead struct {
	Type string `json:"resourceType"`
	ID   string `json:"id"`
	URL  string `json:"url"`
}

func (h resourceHead) reference() string { return h.Type + "/" + h.ID }

// readHead reads the head of a resource. It reports whether the resource is a definition.
func readHead(resource []byte) (h resourceHead, ok bool) {
	err := json.Unmarshal(resource, &h, jsontext.AllowDuplicateNames(true))
	return h, err == nil && slices.Contains(definitionTypes, h.Type)
}

// End removes responses and definitions, and returns the number of responses. If it is not known which of them depend on
// what was written, it removes all.
func (s *State) End(e Ending) (n int) {
	if e.isAll() {
		return s.endAll()
	}
	for _, name := range e.Written {
		removed, known := s.endWritten(name)
		if n += removed; !known {
			return n + s.endAll()
		}
	}
	return n + s.endValueSet(e.ValueSet) + s.endCodeSystem(e.CodeSystem)
}

func (s *State) endAll() int {
	s.backend.forget("")
	s.wholes.Forget("")
	if s.cache == nil {
		return 0
	}
	return s.cache.Purge()
}

func (s *State) endWritten(name string) (n int, known bool) {
	s.wholes.Forget("") // it is not known what they were made of
	before, known := s.backend.forget(name)
	return s.invalidate(name) + s.invalidate(before), known
}

func (s *State) endValueSet(url string) int {
	if url == "" {
		return 0
	}
	s.backend.forget(url)
	s.wholes.Forget(url)
	if s.cache == nil {
		return 0
	}
	return s.cache.InvalidateTag(url)
}

func (s *State) endCodeSystem(url string) int {
	if url == "" {
		return 0
	}
	s.backend.forget(url)
	s.wholes.Forget("") // it is not known which have its concepts
	return s.invalidate(url)
}

// changed removes what depends on a definition that changed behind the next handler, unseen here.
func (s *State) changed(url string) {
	e := Ending{}
	if url == "" && s.cache != nil {
		s.cache.Purge()
	}
	if s.invalidate(url); url != "" {
		e.Written = []string{url}
	}
	if s.announce != nil {
		s.announce(e)
	}
}

func (s *State) invalidate(canonical string) int {
	if canonical == "" || s.cache == nil {
		return 0
	}
	return s.cache.InvalidateSystem(canonical)
}
