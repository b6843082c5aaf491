package storetest

import (
	"context"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// Intercepted is a store whose calls a test hears of before they are made.
type Intercepted struct {
	store.Store

	// Before gets the name of the method, and its key or prefix. Its error is that of the
	// call, which is then not made. Default: all calls are made.
	Before func(method, key string) error
}

func (i *Intercepted) before(method, key string) error {
	if i.Before == nil {
		return nil
	}
	return i.Before(method, key)
}

// Put implements [store.Store].
func (i *Intercepted) Put(ctx context.Context, key string, value []byte, ttl time.Duration) error {
	if err := i.before("Put", key); err != nil {
		return err
	}
	return i.Store.Put(ctx, key, value, ttl)
}

// Add implements [store.Store].
func (i *Intercepted) Add(ctx context.Context, key string, value []byte, ttl time.Duration) error {
	if err := i.before("Add", key); err != nil {
		return err
	}
	return i.Store.Add(ctx, key, value, ttl)
}

// Get implements [store.Store].
func (i *Intercepted) Get(ctx context.Context, key string) ([]byte, error) {
	if err := i.before("Get", key); err != nil {
		return nil, err
	}
	return i.Store.Get(ctx, key)
}

// Swap implements [store.Store].
func (i *Intercepted) Swap(ctx context.Context, key string, old, value []byte, ttl time.Duration) error {
	if err := i.before("Swap", key); err != nil {
		return err
	}
	return i.Store.Swap(ctx, key, old, value, ttl)
}

// Take implements [store.Store].
func (i *Intercepted) Take(ctx context.Context, key string) ([]byte, error) {
	if err := i.before("Take", key); err != nil {
		return nil, err
	}
	return i.Store.Take(ctx, key)
}

// Delete implements [store.Store].
func (i *Intercepted) Delete(ctx context.Context, key string) error {
	if err := i.before("Delete", key); err != nil {
		return err
	}
	return i.Store.Delete(ctx, key)
}

// List implements [store.Store].
func (i *Intercepted) List(ctx context.Context, prefix string) ([]string, error) {
	if err := i.before("List", prefix); err != nil {
		return nil, err
	}
	return i.Store.List(ctx, prefix)
}

// Append implements [store.Store].
func (i *Intercepted) Append(ctx context.Context, key string, item []byte, most int, ttl time.Duration) error {
	if err := i.before("Append", key); err != nil {
		return err
	}
	return i.Store.Append(ctx, key, item, most, ttl)
}

// Do implements [store.Store]. Before gets each of its calls.
func (i *Intercepted) Do(ctx context.Context, calls ...*store.Call) error {
	for _, c := range calls {
		if c.Err = i.before(c.Op.String(), c.Key); c.Err != nil {
			return c.Err
		}
	}
	return i.Store.Do(ctx, calls...)
}
