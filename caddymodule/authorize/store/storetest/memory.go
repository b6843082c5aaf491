package storetest

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// SharedMemory is an in-memory store for several gateways with simulated outages.
type SharedMemory struct {
	memory *store.Memory
	kinds  []string

	mu        sync.Mutex // makes a change and its announcement atomic
	changes   []store.Change
	changedCh chan struct{} // closed when the log grows, or when a gateway is disconnected
	isDown    bool
	skew      time.Duration
}

// NewSharedMemory returns an empty store. Its followers receive these kinds of keys.
func NewSharedMemory(kinds ...string) *SharedMemory {
	return &SharedMemory{memory: store.NewMemory(0, 0), kinds: kinds, changedCh: make(chan struct{})}
}

// Gateway returns a gateway's handle on the store.
func (s *SharedMemory) Gateway() *Gateway {
	g := &Gateway{shared: s}
	g.CallRunner = g.Do
	return g
}

// SetDown makes all calls of all gateways fail with [store.ErrUnavailable], or succeed again.
func (s *SharedMemory) SetDown(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.isDown = down
	s.wakeFollowers()
}

// SetSkew sets the difference between the store's clock and this process's clock.
func (s *SharedMemory) SetSkew(skew time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.skew = skew
}

// wakeFollowers wakes the followers. It requires mu.
func (s *SharedMemory) wakeFollowers() {
	close(s.changedCh)
	s.changedCh = make(chan struct{})
}

// A Gateway is a handle on a [SharedMemory] store.
type Gateway struct {
	store.CallRunner
	shared       *SharedMemory
	disconnected bool // guarded by shared.mu
	roundTrips   int  // guarded by shared.mu
}

// Size returns the number of entries and the limit.
func (g *Gateway) Size() (entries, limit int) { return g.shared.memory.Size() }

// SetDown disconnects this gateway from the store, or reconnects it.
func (g *Gateway) SetDown(down bool) {
	g.shared.mu.Lock()
	defer g.shared.mu.Unlock()
	g.disconnected = down
	g.shared.wakeFollowers()
}

// RoundTrips returns the number of this gateway's calls; each Do counts once and following does not count.
func (g *Gateway) RoundTrips() int {
	g.shared.mu.Lock()
	defer g.shared.mu.Unlock()
	return g.roundTrips
}

// countCall counts a call and returns an error during an outage. It requires mu.
func (g *Gateway) countCall(ctx context.Context) error {
	g.roundTrips++
	if g.disconnected || g.shared.isDown {
		return store.ErrUnavailable
	}
	return ctx.Err()
}

// List implements [store.Store].
func (g *Gateway) List(ctx context.Context, prefix string) ([]string, error) {
	g.shared.mu.Lock()
	defer g.shared.mu.Unlock()
	if err := g.countCall(ctx); err != nil {
		return nil, err
	}
	return g.shared.memory.List(ctx, prefix)
}

// Entries implements [store.Exporter].
func (g *Gateway) Entries(ctx context.Context, yield func(key string, value []byte, ttl time.Duration) error) error {
	g.shared.mu.Lock()
	err := g.countCall(ctx)
	g.shared.mu.Unlock()
	if err != nil {
		return err
	}
	return g.shared.memory.Entries(ctx, yield)
}

// Do implements [store.Store].
func (g *Gateway) Do(ctx context.Context, calls ...*store.Call) error {
	g.shared.mu.Lock()
	defer g.shared.mu.Unlock()
	if err := g.countCall(ctx); err != nil {
		return err
	}
	if err := g.shared.memory.Do(ctx, calls...); err != nil {
		return err
	}
	return g.shared.announce(ctx, calls)
}

// announce reports an executed step to the followers. It requires mu.
func (s *SharedMemory) announce(ctx context.Context, calls []*store.Call) error {
	followed := len(s.changes)
	for _, c := range calls {
		if c.Op == store.Get || !slices.Contains(s.kinds, store.KindOf(c.Key)) {
			continue
		}
		change := store.Change{Key: c.Key, ExpiresAt: time.Now().Add(c.TTL)}
		if c.StoresValue() {
			value, err := s.memory.Get(ctx, c.Key)
			if err != nil {
				return err
			}
			change.Value = append([]byte{}, value...)
		}
		s.changes = append(s.changes, change)
	}
	if len(s.changes) > followed {
		s.wakeFollowers()
	}
	return nil
}

// Subscribe implements [store.SharedStore].
func (g *Gateway) Subscribe(ctx context.Context, onUpdate func(store.Update)) error {
	update, reported, changed, err := g.changesSince(ctx, -1)
	for err == nil {
		onUpdate(update)
		select {
		case <-ctx.Done():
		case <-changed:
		case <-time.After(time.Second):
		}
		update, reported, changed, err = g.changesSince(ctx, reported)
	}
	return err
}

// changesSince returns the changes after the first reported ones, or all followed entries if reported is
// negative; the length of the log; and a channel that is closed when the log grows.
func (g *Gateway) changesSince(ctx context.Context, reported int) (update store.Update, length int, changed <-chan struct{}, err error) {
	s := g.shared
	s.mu.Lock()
	defer s.mu.Unlock()
	update = store.Update{IsComplete: reported < 0, QueriedAt: time.Now()}
	switch {
	case g.disconnected || s.isDown:
		err = store.ErrUnavailable
	case update.IsComplete:
		err = s.memory.Entries(ctx, func(key string, value []byte, ttl time.Duration) error {
			if slices.Contains(s.kinds, store.KindOf(key)) {
				update.Changes = append(update.Changes, store.Change{Key: key, Value: append([]byte{}, value...), ExpiresAt: time.Now().Add(ttl)})
			}
			return nil
		})
	default:
		update.Changes, err = slices.Clone(s.changes[reported:]), ctx.Err()
	}
	return update, len(s.changes), s.changedCh, err
}

// Now implements [store.SharedStore].
func (g *Gateway) Now() time.Time {
	g.shared.mu.Lock()
	defer g.shared.mu.Unlock()
	return time.Now().Add(g.shared.skew)
}

var _ store.SharedStore = (*Gateway)(nil)

// InterceptedStore is an in-memory store that calls a function of the test before each call.
type InterceptedStore struct {
	store.CallRunner

	// Before gets the name of the method and its key or prefix. If it returns an error, the call
	// fails with it and is not executed. Default: all calls are executed.
	Before func(method, key string) error

	memory *store.Memory
}

// NewInterceptedStore returns an empty store.
func NewInterceptedStore(before func(method, key string) error) *InterceptedStore {
	i := &InterceptedStore{Before: before, memory: store.NewMemory(0, 0)}
	i.CallRunner = i.Do
	return i
}

func (i *InterceptedStore) intercept(method, key string) error {
	if i.Before == nil {
		return nil
	}
	return i.Before(method, key)
}

// List implements [store.Store].
func (i *InterceptedStore) List(ctx context.Context, prefix string) ([]string, error) {
	if err := i.intercept("List", prefix); err != nil {
		return nil, err
	}
	return i.memory.List(ctx, prefix)
}

// Do implements [store.Store]. Before is called for each of its calls.
func (i *InterceptedStore) Do(ctx context.Context, calls ...*store.Call) error {
	for _, c := range calls {
		if c.Err = i.intercept(c.Op.String(), c.Key); c.Err != nil {
			return c.Err
		}
	}
	return i.memory.Do(ctx, calls...)
}
