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

// StateOptions configures a [State].
type StateOptions struct {
	// Cache stores responses. Default: nil, which disables storing.
	Cache *cache.Cache

	// Routes select the terminology server for a request. Default: nil, which means that there is none.
	Routes *remote.Routes

	// FullExpansions are full expansions fetched from terminology servers. Default: nil, which disables them.
	FullExpansions *remote.FullExpansions

	// FetchedDefinitions contains definitions fetched from the server behind the next handler. [NewState] sets its Source and
	// OnChange. Default: nil, which disables fetching.
	FetchedDefinitions *terminology.FetchedDefinitions

	// Backend sends requests to the next handler. [NewState] sets its Serve and Backoff. Required if FetchedDefinitions is set.
	Backend remote.Handler

	// Announce notifies the peers of a definition that has changed at the next handler. Default: no notification.
	Announce func(Invalidation)
}

// State contains the data that outlives a [Dispatcher]: stored responses, fetched definitions, and the servers to call. Create
// it with [NewState]. It is safe for concurrent use.
type State struct {
	cache          *cache.Cache // nil: no storing
	routes         *remote.Routes
	fullExpansions *remote.FullExpansions // nil: disabled
	backend        *backend               // nil: no definitions are fetched
	backoff        remote.Backoff         // Retry-After of the next handler

	announce func(Invalidation) // nil: no broadcast
}

// NewState returns a state with the given options.
func NewState(o StateOptions) *State {
	s := &State{cache: o.Cache, routes: o.Routes, fullExpansions: o.FullExpansions, announce: o.Announce}
	if o.FetchedDefinitions != nil {
		s.backend = newBackend(o.FetchedDefinitions, o.Backend, &s.backoff)
		s.backend.fetched.OnChange = s.invalidateChanged
	}
	return s
}

// FetchedDefinitions returns the fetched definitions, or nil if fetching is disabled.
func (s *State) FetchedDefinitions() *terminology.FetchedDefinitions {
	if s.backend == nil {
		return nil
	}
	return s.backend.fetched
}

// Statistics contains counters since the start of the process, and current sizes, of one or more states.
type Statistics struct {
	Hits        uint64 `json:"hits"`         // requests served with a stored response
	Misses      uint64 `json:"misses"`       // all other requests
	Stale       uint64 `json:"stale"`        // requests answered with a stale response
	Evictions   uint64 `json:"evictions"`    // responses evicted to free memory
	Entries     int    `json:"entries"`      // stored responses
	Bytes       int64  `json:"bytes"`        // memory of stored responses in bytes
	Pulled      int    `json:"pulled"`       // full expansions fetched from an upstream
	PulledBytes int64  `json:"pulled_bytes"` // memory of full expansions in bytes, in addition to Bytes
}

// Add returns the sum of s and t.
func (s Statistics) Add(t Statistics) Statistics {
	return Statistics{
		s.Hits + t.Hits, s.Misses + t.Misses, s.Stale + t.Stale, s.Evictions + t.Evictions,
		s.Entries + t.Entries, s.Bytes + t.Bytes, s.Pulled + t.Pulled, s.PulledBytes + t.PulledBytes,
	}
}

// Statistics returns the current statistics of the state.
func (s *State) Statistics() (sum Statistics) {
	sum.Pulled, sum.PulledBytes = s.fullExpansions.CacheUsage()
	if s.cache != nil {
		c := s.cache.Stats()
		sum.Hits, sum.Misses, sum.Stale, sum.Evictions = c.Hits, c.Misses, c.Stale, c.Evictions
		sum.Entries, sum.Bytes = int(c.Entries), c.Bytes
	}
	return sum
}

// backend is the FHIR server behind the next handler, used as a source of definitions. Requests to it have no user credentials.
type backend struct {
	fetched *terminology.FetchedDefinitions
	server  remote.Handler
	next    atomic.Pointer[NextHandler]

	mu                   sync.Mutex
	references           map[string]string // canonicals of fetched definitions by type and ID
	referencesIncomplete bool              // responses may depend on definitions that references lacks
}

func newBackend(fetched *terminology.FetchedDefinitions, handler remote.Handler, backoff *remote.Backoff) *backend {
	b := &backend{fetched: fetched, references: map[string]string{}}
	handler.Backoff = backoff
	handler.Serve = func(w http.ResponseWriter, r *http.Request) error { return (*b.next.Load()).ServeHTTP(w, r) }
	b.server = handler
	fetched.Source = b
	return b
}

// setNext stores the next handler of a request for background fetches, and renews expired definitions.
func (b *backend) setNext(server Server, r *http.Request, next NextHandler) {
	handler := server.Background(r, next)
	b.next.Store(&handler)
	b.fetched.Renew()
}

const maxReferences = 100_000

// Definitions implements [terminology.Source]. It records IDs, so that writes to them invalidate the old definitions.
func (b *backend) Definitions(ctx context.Context, m outcome.MissingDefinition) ([]jsontext.Value, error) {
	list, err := b.server.Definitions(ctx, m)
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, resource := range list {
		switch d, ok := readSummary(resource); {
		case !ok:
		case len(b.references) < maxReferences:
			b.references[d.reference()] = d.URL
		default:
			b.referencesIncomplete = true
		}
	}
	return list, err
}

// clearReferences clears the references. Call it before dropping definitions, so that later fetches are recorded.
func (b *backend) clearReferences() {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.references)
	b.referencesIncomplete = false
}

// drop drops a definition by canonical or by type and ID, or all definitions if name is empty. For a type and ID it returns the
// canonical of the definition, and false if its reference may have been lost.
func (b *backend) drop(name string) (url string, known bool) {
	if b == nil {
		return "", true
	}
	if name == "" {
		b.clearReferences()
	}
	b.fetched.Forget(name)
	if !strings.Contains(name, "/") {
		return "", true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	url, known = b.references[name]
	return url, known || !b.referencesIncomplete
}

var _ terminology.Source = (*backend)(nil)

var definitionTypes = []string{"ValueSet", "CodeSystem", "ConceptMap"}

type resourceSummary struct {
	Type string `json:"resourceType"`
	ID   string `json:"id"`
	URL  string `json:"url"`
}

func (h resourceSummary) reference() string { return h.Type + "/" + h.ID }

// readSummary reads the identifying members of a resource. ok is false if the resource is not a definition.
func readSummary(resource []byte) (h resourceSummary, ok bool) {
	err := json.Unmarshal(resource, &h, jsontext.AllowDuplicateNames(true))
	return h, err == nil && slices.Contains(definitionTypes, h.Type)
}

// ApplyInvalidation removes invalid responses and definitions, and returns the number of removed responses. It removes
// everything if the dependents of a written definition are unknown.
func (s *State) ApplyInvalidation(e Invalidation) (n int) {
	if e.isAll() {
		return s.invalidateAll()
	}
	for _, name := range e.Definitions {
		removed, known := s.invalidateDefinition(name)
		if n += removed; !known {
			return n + s.invalidateAll()
		}
	}
	return n + s.invalidateValueSet(e.ValueSet) + s.invalidateCodeSystem(e.CodeSystem)
}

func (s *State) invalidateAll() int {
	s.backend.drop("")
	s.fullExpansions.Forget("")
	if s.cache == nil {
		return 0
	}
	return s.cache.Purge()
}

func (s *State) invalidateDefinition(name string) (n int, known bool) {
	s.fullExpansions.Forget("") // full expansions don't record their definitions
	before, known := s.backend.drop(name)
	return s.invalidate(name) + s.invalidate(before), known
}

func (s *State) invalidateValueSet(url string) int {
	if url == "" {
		return 0
	}
	s.backend.drop(url)
	s.fullExpansions.Forget(url)
	if s.cache == nil {
		return 0
	}
	return s.cache.InvalidateTag(url)
}

func (s *State) invalidateCodeSystem(url string) int {
	if url == "" {
		return 0
	}
	s.backend.drop(url)
	s.fullExpansions.Forget("") // full expansions don't record their code systems
	return s.invalidate(url)
}

// invalidateChanged invalidates the dependents of a definition that changed without a write through this gateway.
func (s *State) invalidateChanged(url string) {
	e := Invalidation{}
	if url == "" && s.cache != nil {
		s.cache.Purge()
	}
	if s.invalidate(url); url != "" {
		e.Definitions = []string{url}
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
