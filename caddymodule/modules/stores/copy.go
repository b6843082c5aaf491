package stores

import (
	"context"
	"fmt"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// OpenDurable opens the durable store of the configuration at path, for a process that uses it alone.
func (s *Set) OpenDurable(ctx context.Context, path string, mayMake bool, wait time.Duration) (*Copy, error) {
	if _, is := isVolatile(s.Durable); is {
		return nil, ErrVolatile
	}
	if guest, ok := s.Durable.(Copied); ok {
		return guest.OpenCopy(mayMake, wait)
	}
	for _, shared := range s.shared {
		if shared.replica == s.Durable {
			return shared.open(ctx, path)
		}
	}
	durable, ok := s.Durable.(store.Copyable)
	if !ok {
		return nil, fmt.Errorf("its durable store, a %T, cannot be copied", s.Durable)
	}
	return &Copy{Copyable: durable, Name: "the durable store of " + path}, nil
}

// open is for a process that uses the store alone.
func (s *pooledShared) open(ctx context.Context, path string) (*Copy, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := s.remote.Check(ctx); err != nil {
		return nil, err
	}
	remote, ok := s.remote.Shared.(store.Copyable)
	if !ok {
		return nil, fmt.Errorf("its store, %s, cannot be copied", s.name)
	}
	return &Copy{Copyable: remote, Name: fmt.Sprintf("the %s store of %s", s.name, path), Identity: s.name}, nil
}
