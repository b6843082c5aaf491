package replica

import (
	"context"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// maxChanged bounds the keys of changed; there are more only if following fails.
const maxChanged = 10_000

// changed are the mirrored keys that this process changed, for which the store is asked until
// it has announced the change. The replica does not make the change itself: another process may
// have made a later one, which was announced already.
type changed struct {
	at map[string]int64 // by key: when the store had answered

	any    bool // more keys than at holds
	latest int64
}

func (c *changed) has(key string) bool {
	if len(c.at) == 0 { // the usual case
		return c.any
	}
	_, found := c.at[key]
	return found || c.any
}

func (c *changed) add(key string, now int64) {
	if c.latest = now; len(c.at) >= maxChanged {
		c.at, c.any = nil, true
		return
	}
	if c.at == nil {
		c.at = map[string]int64{}
	}
	c.at[key] = now
}

// announced removes the changes that the store has announced when it was asked at a time.
func (c *changed) announced(heard int64) {
	for key, at := range c.at {
		if at < heard {
			delete(c.at, key)
		}
	}
	if c.latest < heard {
		c.any = false
	}
}

// Put implements [store.Store].
func (r *Replica) Put(ctx context.Context, key string, value []byte, ttl time.Duration) error {
	return r.made(key, r.Shared.Put(ctx, key, value, ttl))
}

// Add implements [store.Store].
func (r *Replica) Add(ctx context.Context, key string, value []byte, ttl time.Duration) error {
	return r.made(key, r.Shared.Add(ctx, key, value, ttl))
}

// Swap implements [store.Store].
func (r *Replica) Swap(ctx context.Context, key string, old, value []byte, ttl time.Duration) error {
	return r.made(key, r.Shared.Swap(ctx, key, old, value, ttl))
}

// Take implements [store.Store].
func (r *Replica) Take(ctx context.Context, key string) ([]byte, error) {
	value, err := r.Shared.Take(ctx, key)
	return value, r.made(key, err)
}

// Delete implements [store.Store].
func (r *Replica) Delete(ctx context.Context, key string) error {
	return r.made(key, r.Shared.Delete(ctx, key))
}

// Append implements [store.Store].
func (r *Replica) Append(ctx context.Context, key string, item []byte, most int, ttl time.Duration) error {
	return r.made(key, r.Shared.Append(ctx, key, item, most, ttl))
}

// Do implements [store.Store]. It always asks the store, for each Get too.
func (r *Replica) Do(ctx context.Context, calls ...*store.Call) error {
	err := r.Shared.Do(ctx, calls...)
	for _, c := range calls {
		if c.Op != store.Get {
			_ = r.made(c.Key, err)
		}
	}
	return err
}

// made forgets what is known of a key that a call has changed, and returns the call's error.
// After an error, a change that was made all the same is announced like those of other processes.
func (r *Replica) made(key string, err error) error {
	mirrored := hasAnyPrefix(key, r.mirrored)
	if err != nil || !mirrored && !hasAnyPrefix(key, r.cached) {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.forget(key); mirrored {
		r.changed.add(key, r.now())
	}
	return nil
}
