package storetest

import (
	"context"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// Intercepted is a store in memory whose calls a test hears of before they are made.
type Intercepted struct {
	store.Singly

	// Before gets the name of the method, and its key or prefix. Its error is that of the
	// call, which is then not made. Default: all calls are made.
	Before func(method, key string) error

	memory *store.Memory
}

// NewIntercepted returns an empty store.
func NewIntercepted(before func(method, key string) error) *Intercepted {
	i := &Intercepted{Before: before, memory: store.NewMemory(0, 0)}
	i.Singly = i.Do
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

// Do implements [store.Store]. Before gets each of its calls.
func (i *Intercepted) Do(ctx context.Context, calls ...*store.Call) error {
	for _, c := range calls {
		if c.Err = i.before(c.Op.String(), c.Key); c.Err != nil {
			return c.Err
		}
	}
	return i.memory.Do(ctx, calls...)
}
