package front

import (
	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/cache"
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

	// Backend says how to ask that server. [NewState] sets its Serve and Backoff. Required with Fetched.
	Backend remote.Handler

	// Announce tells the peers of a definition that changed behind the next handler, found when it was fetched again.
	// Default: nobody is told.
	Announce func(Ending)
}

// State is what outlives a [Front]: stored responses, fetched definitions, and the servers to ask. Make one with
// [NewState]. It is safe for concurrent use.
type State struct {
	cache   *cache.Cache // nil: no answers are stored
	routes  *remote.Routes
	wholes  *remote.Wholes // nil: none is fetched
	backend *backend       // nil: no definitions are fetched
	backoff remote.Backoff // of the next handler

	announce func(Ending) // nil: nobody is told
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
