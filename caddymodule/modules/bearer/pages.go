package bearer

import (
	"context"
	"crypto/rand"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/enforce"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/sharedkey"
)

// linkSealing seals links with the first key and unseals links sealed with any of the keys.
type linkSealing struct{ keys keyring.SharedKeys }

// processSealing seals links with a random key for guards that run without the fhir app, which has persistent keys. Page links
// become invalid on restart.
var processSealing = sync.OnceValues(func() (linkSealing, error) {
	key := make([]byte, 32)
	rand.Read(key) // never fails; see crypto/rand
	sealer, err := keyring.NewSealer(key)
	return linkSealing{keyring.SharedKeys{sealer}}, err
})

// Seal implements [enforce.Sealing].
func (s linkSealing) Seal(_ context.Context, text, binding string) (string, error) {
	return s.keys.Seal(text, binding), nil
}

// Unseal implements [enforce.Sealing].
func (s linkSealing) Unseal(_ context.Context, sealed, binding string, maxAge time.Duration) (string, error) {
	return s.keys.Unseal(sealed, binding, maxAge)
}

// newSealing returns the sealing of links to pages and jobs. It uses the keys of the app or, without the app, the seal keys.
func newSealing(app App, sealKeys []string) (enforce.Sealing, error) {
	switch {
	case app != nil && len(sealKeys) > 0:
		return nil, errors.New("seal_key cannot be combined with the fhir global option, whose keys seal links; for several gateways, set store_key there")
	case app != nil:
		return app.Keys(), nil
	case len(sealKeys) == 0:
		return processSealing()
	}
	keys, err := sharedkey.Resolve("seal_key", sealKeys, sharedkey.NewLinkKeys)
	return linkSealing{keys}, err
}

var _ enforce.Sealing = linkSealing{}

// statesKind is the kind of the store's keys that contain page states.
const statesKind = "page"

// stateLimits contains the limits of one gateway. Gateways that share a store have separate limits.
type stateLimits struct {
	// statesPerClient and bytesPerClient are the maximum number and total size of states per person and client. If they are
	// exceeded, the oldest state is discarded.
	statesPerClient, bytesPerClient int
	// totalBytes is the maximum total size of all states. If it is exceeded, the oldest state of the client with the largest
	// total size is discarded, so that a client cannot displace the states of others.
	totalBytes int
}

var defaultStateLimits = stateLimits{statesPerClient: 1024, bytesPerClient: 16 << 20, totalBytes: 256 << 20}

// pageStates stores page states within the limits.
type pageStates struct {
	store   store.Store
	limits  stateLimits
	mu      sync.Mutex
	clients map[string][]pageState // oldest first
	sizes   map[string]int         // total size in bytes by client
	bytes   int                    // total size of all states in bytes
	sweptAt time.Time
}

type pageState struct {
	client  string
	key     string
	size    int
	expires time.Time
}

// newPageStates returns page states in the app's store, which gateways may share, or, without the app, in memory.
func newPageStates(app App) enforce.PageStates {
	if app == nil {
		return processStates()
	}
	return newStatesIn(app.Stores().Store, defaultStateLimits)
}

// processStates stores the states for guards that run without the fhir app. Like the links, they survive reloads.
var processStates = sync.OnceValue(func() *pageStates { return newStatesIn(store.NewMemory(0, time.Hour), defaultStateLimits) })

func newStatesIn(in store.Store, limits stateLimits) *pageStates {
	return &pageStates{store: in, limits: limits, clients: map[string][]pageState{}, sizes: map[string]int{}, sweptAt: time.Now()}
}

// PutState implements [enforce.PageStates].
func (s *pageStates) PutState(ctx context.Context, binding, key string, state []byte, ttl time.Duration) error {
	added := pageState{bindingClient(binding), store.Key(statesKind, key), len(state), time.Now().Add(ttl)}
	discarded := s.selectDiscarded(added)
	calls := []*store.Call{{Op: store.Put, Key: added.key, Value: state, TTL: ttl}}
	for _, old := range discarded {
		calls = append(calls, &store.Call{Op: store.Delete, Key: old.key})
	}
	if err := s.store.Do(ctx, calls...); err != nil {
		return err
	}
	s.record(added, discarded)
	return nil
}

// selectDiscarded returns the states that must be discarded so that a new state can be stored.
func (s *pageStates) selectDiscarded(added pageState) (discarded []pageState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.sweptAt) > time.Hour || s.bytes+added.size > s.limits.totalBytes {
		s.sweep()
	}
	states, sizes, freedBytes := s.clients, s.sizes, 0
	discardOldest := func(client string) {
		if len(discarded) == 0 {
			states, sizes = maps.Clone(s.clients), maps.Clone(s.sizes)
		}
		oldest := states[client][0]
		states[client] = states[client][1:]
		sizes[client] -= oldest.size
		discarded, freedBytes = append(discarded, oldest), freedBytes+oldest.size
	}
	for len(states[added.client]) > 0 && (len(states[added.client]) >= s.limits.statesPerClient || sizes[added.client]+added.size > s.limits.bytesPerClient) {
		discardOldest(added.client)
	}
	for freedBytes < s.bytes && s.bytes-freedBytes+added.size > s.limits.totalBytes {
		discardOldest(largestClient(sizes))
	}
	return discarded
}

// largestClient returns the client with the largest total size of states.
func largestClient(sizes map[string]int) (client string) {
	maximum := 0
	for name, size := range sizes {
		if size > maximum {
			client, maximum = name, size
		}
	}
	return client
}

// record adds a stored state to the counters and removes the discarded ones.
func (s *pageStates) record(added pageState, discarded []pageState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, old := range discarded {
		s.remove(old.client, func(state pageState) bool { return state == old })
	}
	s.clients[added.client] = append(s.clients[added.client], added)
	s.sizes[added.client] += added.size
	s.bytes += added.size
}

// sweep removes expired states, which the store has already deleted, from the counters.
func (s *pageStates) sweep() {
	s.sweptAt = time.Now()
	for client := range s.clients {
		s.remove(client, func(state pageState) bool { return !s.sweptAt.Before(state.expires) })
	}
}

// remove removes those states of a client for which matches returns true from the counters.
func (s *pageStates) remove(client string, matches func(pageState) bool) {
	remaining := slices.DeleteFunc(s.clients[client], func(state pageState) bool {
		if !matches(state) {
			return false
		}
		s.bytes -= state.size
		s.sizes[client] -= state.size
		return true
	})
	if s.clients[client] = remaining; len(remaining) == 0 {
		delete(s.clients, client)
		delete(s.sizes, client)
	}
}

// GetState implements [enforce.PageStates].
func (s *pageStates) GetState(ctx context.Context, key string) ([]byte, error) {
	state, err := s.store.Get(ctx, store.Key(statesKind, key))
	if errors.Is(err, store.ErrNotFound) {
		return nil, enforce.ErrNoPageState
	}
	return state, err
}
