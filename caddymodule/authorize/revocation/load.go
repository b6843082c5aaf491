package revocation

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// load makes the revocations known that were stored before this process started, once. Until
// that has succeeded, no token is valid.
func (r *Revocations) load(ctx context.Context) error {
	if r.loaded.Load() {
		return nil
	}
	r.loading.Lock()
	defer r.loading.Unlock()
	if r.loaded.Load() { // while waiting
		return nil
	}
	if err := r.copyDurable(ctx); err != nil {
		return fmt.Errorf("reading the revocations: %w", err)
	}
	r.loaded.Store(true)
	return nil
}

// copyDurable copies the entries of the durable store.
func (r *Revocations) copyDurable(ctx context.Context) error {
	keys, err := r.durable.List(ctx, revokedPrefix)
	if err != nil {
		return err
	}
	for _, key := range keys {
		if err := r.copyRevocation(ctx, key); err != nil {
			return err
		}
	}
	return r.copyCutoffs(ctx)
}

func (r *Revocations) copyRevocation(ctx context.Context, key string) error {
	text, err := r.durable.Get(ctx, key)
	if errors.Is(err, store.ErrNotFound) { // by now
		return nil
	}
	var until time.Time
	if err == nil {
		err = until.UnmarshalText(text)
	}
	left := store.Until(r.durable, until)
	if err != nil || left <= 0 {
		return err
	}
	return r.near.Put(ctx, key, text, left)
}

func (r *Revocations) copyCutoffs(ctx context.Context) error {
	keys, err := r.durable.List(ctx, cutoffPrefix)
	for _, key := range keys {
		var at time.Time
		if err == nil {
			at, err = readCutoff(ctx, r.durable, key)
		}
		if err == nil {
			err = r.putCutoffs(ctx, r.near, at, []string{key}, nil)
		}
	}
	return err
}
