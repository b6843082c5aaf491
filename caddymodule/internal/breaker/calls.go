package breaker

import (
	"context"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// Put implements [store.Store].
func (b *Breaker) Put(ctx context.Context, key string, value []byte, ttl time.Duration) error {
	return b.call(ctx, "put", func() error { return b.Shared.Put(ctx, key, value, ttl) })
}

// Add implements [store.Store].
func (b *Breaker) Add(ctx context.Context, key string, value []byte, ttl time.Duration) error {
	return b.call(ctx, "add", func() error { return b.Shared.Add(ctx, key, value, ttl) })
}

// Swap implements [store.Store].
func (b *Breaker) Swap(ctx context.Context, key string, old, value []byte, ttl time.Duration) error {
	return b.call(ctx, "swap", func() error { return b.Shared.Swap(ctx, key, old, value, ttl) })
}

// Append implements [store.Store].
func (b *Breaker) Append(ctx context.Context, key string, item []byte, most int, ttl time.Duration) error {
	return b.call(ctx, "append", func() error { return b.Shared.Append(ctx, key, item, most, ttl) })
}

// Get implements [store.Store].
func (b *Breaker) Get(ctx context.Context, key string) (value []byte, err error) {
	err = b.call(ctx, "get", func() error {
		value, err = b.Shared.Get(ctx, key)
		return err
	})
	return value, err
}

// Take implements [store.Store].
func (b *Breaker) Take(ctx context.Context, key string) (value []byte, err error) {
	err = b.call(ctx, "take", func() error {
		value, err = b.Shared.Take(ctx, key)
		return err
	})
	return value, err
}

// Delete implements [store.Store].
func (b *Breaker) Delete(ctx context.Context, key string) error {
	return b.call(ctx, "delete", func() error { return b.Shared.Delete(ctx, key) })
}

// List implements [store.Store].
func (b *Breaker) List(ctx context.Context, prefix string) (keys []string, err error) {
	err = b.call(ctx, "list", func() error {
		keys, err = b.Shared.List(ctx, prefix)
		return err
	})
	return keys, err
}

// Do implements [store.Store].
func (b *Breaker) Do(ctx context.Context, calls ...*store.Call) error {
	return b.call(ctx, "step", func() error { return b.Shared.Do(ctx, calls...) })
}

var _ store.Shared = (*Breaker)(nil)
