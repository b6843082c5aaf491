package bearer

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/enforce"
)

// statesKind is the kind of the store's keys for page states.
const statesKind = "page"

// stateLimits limit what one gateway stores. Where several gateways share a store, each has its own limits.
type stateLimits struct {
	// ofClient and bytesOfClient are for one person with one client. Beyond, the oldest state is discarded.
	ofClient, bytesOfClient int
	// bytes are for all clients. Beyond, nothing is stored.
	bytes int
}

var defaultStateLimits = stateLimits{ofClient: 1024, bytesOfClient: 16 << 20, bytes: 256 << 20}

var errStatesFull = errors.New("too many page states are stored")

// pageStates stores states of pages, as far as the limits allow.
type pageStates struct {
	store   store.Store
	limits  stateLimits
	mu      sync.Mutex
	clients map[string][]pageState // the oldest first
	bytes   int                    // of all clients
	swept   time.Time
}

// pageState is a stored state.
type pageState struct {
	key     string
	size    int
	expires time.Time
}

// newPageStates returns states in the store of the app, which gateways may share, or without it in memory.
func newPageStates(app App) enforce.PageStates {
	if app == nil {
		return processStates()
	}
	return newStates(app.Stores().Store, defaultStateLimits)
}

// processStates stores states for guards without the fhir app. They survive a reload, as links do.
var processStates = sync.OnceValue(func() *pageStates { return newStates(store.NewMemory(0, time.Hour), defaultStateLimits) })

func newStates(in store.Store, limits stateLimits) *pageStates {
	return &pageStates{store: in, limits: limits, clients: map[string][]pageState{}, swept: time.Now()}
}

// PutState implements [enforce.PageStates].
func (s *pageStates) PutState(ctx context.Context, binding, key string, state []byte, ttl time.Duration) error {
	client, added := bindingClient(binding), pageState{store.Key(statesKind, key), len(state), time.Now().Add(ttl)}
	discarded, err := s.makeRoom(client, added.size)
	if err != nil {
		return err
	}
	step := []*store.Call{{Op: store.Put, Key: added.key, Value: state, TTL: ttl}}
	for _, old := range discarded {
		step = append(step, &store.Call{Op: store.Delete, Key: old.key})
	}
	if err := s.store.Do(ctx, step...); err != nil {
		return err
	}
	s.record(client, added, discarded)
	return nil
}

// makeRoom returns the states of a client that must be discarded for another one.
func (s *pageStates) makeRoom(client string, size int) (discarded []pageState, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.swept) > time.Hour || s.bytes+size > s.limits.bytes {
		s.sweep()
	}
	states, total := s.clients[client], size
	for _, state := range states {
		total += state.size
	}
	freed := 0
	for len(states)-len(discarded) >= s.limits.ofClient || total-freed > s.limits.bytesOfClient && len(discarded) < len(states) {
		oldest := states[len(discarded)]
		discarded, freed = append(discarded, oldest), freed+oldest.size
	}
	if s.bytes-freed+size > s.limits.bytes {
		return nil, errStatesFull
	}
	return discarded, nil
}

// record records what was stored and discarded.
func (s *pageStates) record(client string, added pageState, discarded []pageState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clients[client] = append(s.remove(client, func(state pageState) bool { return slices.Contains(discarded, state) }), added)
	s.bytes += added.size
}

// sweep forgets expired states, which the store has removed.
func (s *pageStates) sweep() {
	s.swept = time.Now()
	for client := range s.clients {
		left := s.remove(client, func(state pageState) bool { return !s.swept.Before(state.expires) })
		if s.clients[client] = left; len(left) == 0 {
			delete(s.clients, client)
		}
	}
}

// remove returns the states of a client without those that match, and subtracts their size.
func (s *pageStates) remove(client string, matches func(pageState) bool) []pageState {
	return slices.DeleteFunc(s.clients[client], func(state pageState) bool {
		if !matches(state) {
			return false
		}
		s.bytes -= state.size
		return true
	})
}

// GetState implements [enforce.PageStates].
func (s *pageStates) GetState(ctx context.Context, key string) ([]byte, error) {
	state, err := s.store.Get(ctx, store.Key(statesKind, key))
	if errors.Is(err, store.ErrNotFound) {
		return nil, enforce.ErrNoPageState
	}
	return state, err
}
