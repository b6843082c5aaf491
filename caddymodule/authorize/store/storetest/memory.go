package storetest

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// Shared is an in-memory store for several gateways with simulated outages.
type Shared struct {
	memory *store.Memory
	kinds  []string

	mu      sync.Mutex // makes a change and its announcement atomic
	log     []store.Change
	changed chan struct{} // closed when the log grows, or when a gateway is disconnected
	down    bool
	skew    time.Duration
}

// NewShared returns an empty store. Its followers receive these kinds of keys.
func NewShared(kinds ...string) *Shared {
	return &Shared{memory: store.NewMemory(0, 0), kinds: kinds, changed: make(chan struct{})}
}

// Gateway returns a gateway's handle on the store.
func (s *Shared) Gateway() *Gateway {
	g := &Gateway{shared: s}
	g.CallRunner = g.Do
	return g
}

// SetDown makes all calls of all gateways fail with [store.ErrUnavailable], or succeed again.
func (s *Shared) SetDown(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = down
	s.wake()
}

// SetSkew sets the difference between the store's clock and this process's clock.
func (s *Shared) SetSkew(skew time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.skew = skew
}

// wake wakes the followers. It requires mu.
func (s *Shared) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// A Gateway is a handle on a [Shared] store.
type Gateway struct {
	store.CallRunner
	shared *Shared
	cut    bool // guarded by shared.mu
	trips  int  // guarded by shared.mu
}

// Size returns the number of entries and the limit.
func (g *Gateway) Size() (entries, bound int) { return g.shared.memory.Size() }

// SetDown disconnects this gateway from the store, or reconnects it.
func (g *Gateway) SetDown(down bool) {
	g.shared.mu.Lock()
	defer g.shared.mu.Unlock()
	g.cut = down
	g.shared.wake()
}

// RoundTrips returns the number of this gateway's calls; each Do counts once and following does not count.
func (g *Gateway) RoundTrips() int {
	g.shared.mu.Lock()
	defer g.shared.mu.Unlock()
	return g.trips
}

// reach counts a call and returns an error during an outage. It requires mu.
func (g *Gateway) reach(ctx context.Context) error {
	g.trips++
	if g.cut || g.shared.down {
		return store.ErrUnavailable
	}
	return ctx.Err()
}

// List implements [store.Store].
func (g *Gateway) List(ctx context.Context, prefix string) ([]string, error) {
	g.shared.mu.Lock()
	defer g.shared.mu.Unlock()
	if err := g.reach(ctx); err != nil {
		return nil, err
	}
	return g.shared.memory.List(ctx, prefix)
}

// Entries implements [store.Exporter].
func (g *Gateway) Entries(ctx context.Context, tell func(key string, value []byte, ttl time.Duration) error) error {
	g.shared.mu.Lock()
	err := g.reach(ctx)
	g.shared.mu.Unlock()
	if err != nil {
		return err
	}
	return g.shared.memory.Entries(ctx, tell)
}

// Do implements [store.Store].
func (g *Gateway) Do(ctx context.Context, calls ...*store.Call) error {
	g.shared.mu.Lock()
	defer g.shared.mu.Unlock()
	if err := g.reach(ctx); err != nil {
		return err
	}
	if err := g.shared.memory.Do(ctx, calls...); err != nil {
		return err
	}
	return g.shared.announce(ctx, calls)
}

// announce reports an executed step to the followers. It requires mu.
func (s *Shared) announce(ctx context.Context, calls []*store.Call) error {
	known := len(s.log)
	for _, c := range calls {
		if c.Op == store.Get || !slices.Contains(s.kinds, store.KindOf(c.Key)) {
			continue
		}
		change := store.Change{Key: c.Key, Expires: time.Now().Add(c.TTL)}
		if c.Stores() {
			value, err := s.memory.Get(ctx, c.Key)
			if err != nil {
				return err
			}
			change.Value = append([]byte{}, value...)
		}
		s.log = append(s.log, change)
	}
	if len(s.log) > known {
		s.wake()
	}
	return nil
}

// Subscribe implements [store.Shared].
func (g *Gateway) Subscribe(ctx context.Context, tell func(store.Update)) error {
	update, reported, changed, err := g.since(ctx, -1)
	for err == nil {
		tell(update)
		select {
		case <-ctx.Done():
		case <-changed:
		case <-time.After(time.Second):
		}
		update, reported, changed, err = g.since(ctx, reported)
	}
	return err
}

// since returns the changes after the first reported ones, or all followed entries if reported is
// negative; the length of the log; and a channel that is closed when the log grows.
func (g *Gateway) since(ctx context.Context, reported int) (update store.Update, length int, changed <-chan struct{}, err error) {
	s := g.shared
	s.mu.Lock()
	defer s.mu.Unlock()
	update = store.Update{IsComplete: reported < 0, QueriedAt: time.Now()}
	switch {
	case g.cut || s.down:
		err = store.ErrUnavailable
	case update.IsComplete:
		err = s.memory.Entries(ctx, func(key string, value []byte, ttl time.Duration) error {
			if slices.Contains(s.kinds, store.KindOf(key)) {
				update.Changes = append(update.Changes, store.Change{Key: key, Value: append([]byte{}, value...), Expires: time.Now().Add(ttl)})
			}
			return nil
		})
	default:
		update.Changes, err = slices.Clone(s.log[reported:]), ctx.Err()
	}
	return update, len(s.log), s.changed, err
}

// Now implements [store.Shared].
func (g *Gateway) Now() time.Time {
	g.shared.mu.Lock()
	defer g.shared.mu.Unlock()
	return time.Now().Add(g.shared.skew)
}

var _ store.Shared = (*Gateway)(nil)

// Intercepted is an in-memory store that calls a function of the test before each call.
type Intercepted struct {
	store.CallRunner

	// Before gets the name of the method and its key or prefix. If it returns an error, the call
	// fails with it and is not executed. Default: all calls are executed.
	Before func(method, key string) error

	memory *store.Memory
}

// NewIntercepted returns an empty store.
func NewIntercepted(before func(method, key string) error) *Intercepted {
	i := &Intercepted{Before: before, memory: store.NewMemory(0, 0)}
	i.CallRunner = i.Do
	return i
}

func (i *Intercepted) before(method, key string) error {
	if i.Before == nil {
		return nil
	}
	return i.Before(method, key)
}

// List implements [store.Store].
func (i *Intercepted) List(ctx context.Context, prefix string) ([]string, error) {
	if err := i.before("List", prefix); err != nil {
		return nil, err
	}
	return i.memory.List(ctx, prefix)
}

// Do implements [store.Store]. Before is called for each of its calls.
func (i *Intercepted) Do(ctx context.Context, calls ...*store.Call) error {
	for _, c := range calls {
		if c.Err = i.before(c.Op.String(), c.Key); c.Err != nil {
			return c.Err
		}
	}
	return i.memory.Do(ctx, calls...)
}
