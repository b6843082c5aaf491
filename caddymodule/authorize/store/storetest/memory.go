package storetest

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// SharedMemory is an in-memory store that several gateways share. It can simulate outages.
type SharedMemory struct {
	memory *store.Memory
	kinds  []string

	mu        sync.Mutex // held during a change, so that the change and its announcement are atomic
	changes   []store.Change
	changedCh chan struct{} // closed when the list of changes grows or a gateway is disconnected
	isDown    bool
	skew      time.Duration
}

// NewSharedMemory returns an empty store. Followers receive entries of the given kinds.
func NewSharedMemory(kinds ...string) *SharedMemory {
	return &SharedMemory{memory: store.NewMemory(0, 0), kinds: kinds, changedCh: make(chan struct{})}
}

// Gateway returns a new gateway that uses the store.
func (s *SharedMemory) Gateway() *Gateway {
	g := &Gateway{shared: s}
	g.CallRunner = g.Do
	return g
}

// SetDown makes all calls by all gateways fail with [store.ErrUnavailable], or lets them succeed again.
func (s *SharedMemory) SetDown(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.isDown = down
	s.wakeFollowers()
}

// SetSkew sets by how much the store's clock is ahead of this process's clock.
func (s *SharedMemory) SetSkew(skew time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.skew = skew
}

// wakeFollowers wakes the followers. The caller must hold mu.
func (s *SharedMemory) wakeFollowers() {
	close(s.changedCh)
	s.changedCh = make(chan struct{})
}

// A Gateway is one gateway's access to a [SharedMemory] store.
type Gateway struct {
	store.CallRunner
	shared       *SharedMemory
	disconnected bool // guarded by shared.mu
	roundTrips   int  // guarded by shared.mu
}

// Size returns the number of entries and the maximum.
func (g *Gateway) Size() (entries, limit int) { return g.shared.memory.Size() }

// SetDown disconnects this gateway from the store, or reconnects it.
func (g *Gateway) SetDown(down bool) {
	g.shared.mu.Lock()
	defer g.shared.mu.Unlock()
	g.disconnected = down
	g.shared.wakeFollowers()
}

// RoundTrips returns the number of calls by this gateway. A call of Do is counted once; following is not counted.
func (g *Gateway) RoundTrips() int {
	g.shared.mu.Lock()
	defer g.shared.mu.Unlock()
	return g.roundTrips
}

// countCall counts a call and returns an error during an outage. The caller must hold mu.
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

// announce reports the changes by an executed step to the followers. The caller must hold mu.
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

// changesSince returns s.changes[reported:], the total number of changes, and a channel that is closed after the next change.
// If reported is negative, it returns all followed entries instead of changes.
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

// InterceptedStore is an in-memory store that calls a function before each call, e.g. to simulate failures.
type InterceptedStore struct {
	store.CallRunner

	// Before is called with the name of the method and its key or prefix. If it returns an error, the call returns this error
	// and is not executed. Default: all calls are executed.
	Before func(method, key string) error

	memory *store.Memory
}

// NewInterceptedStore returns an empty store that calls before.
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
