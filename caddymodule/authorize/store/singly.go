package store

import (
	"context"
	"time"
)

// Singly makes single calls by a [Store.Do], each as a step of its own. An implementation of
// [Store] embeds it, with its own Do.
type Singly func(ctx context.Context, calls ...*Call) error

// Put implements [Store].
func (do Singly) Put(ctx context.Context, key string, value []byte, ttl time.Duration) error {
	return do(ctx, &Call{Op: Put, Key: key, Value: value, TTL: ttl})
}

// Add implements [Store].
func (do Singly) Add(ctx context.Context, key string, value []byte, ttl time.Duration) error {
	return do(ctx, &Call{Op: Add, Key: key, Value: value, TTL: ttl})
}

// Swap implements [Store].
func (do Singly) Swap(ctx context.Context, key string, old, value []byte, ttl time.Duration) error {
	return do(ctx, &Call{Op: Swap, Key: key, Old: old, Value: value, TTL: ttl})
}

// Append implements [Store].
func (do Singly) Append(ctx context.Context, key string, item []byte, most int, ttl time.Duration) error {
	return do(ctx, &Call{Op: Append, Key: key, Value: item, Max: most, TTL: ttl})
}

// Get implements [Store].
func (do Singly) Get(ctx context.Context, key string) ([]byte, error) {
	c := &Call{Op: Get, Key: key}
	err := do(ctx, c)
	if err == nil && c.Value == nil {
		err = ErrNotFound
	}
	return c.Value, err
}

// Take implements [Store].
func (do Singly) Take(ctx context.Context, key string) ([]byte, error) {
	c := &Call{Op: Take, Key: key}
	err := do(ctx, c)
	return c.Value, err
}

// Delete implements [Store].
func (do Singly) Delete(ctx context.Context, key string) error {
	return do(ctx, &Call{Op: Delete, Key: key})
}
