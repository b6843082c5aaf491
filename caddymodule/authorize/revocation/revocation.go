package revocation

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// Values of the entry of a token or family.
var (
	CodeRedeemed = []byte("its code was used")
	tokenRevoked = []byte("revoked")
)

// TokenKey is the key of a jti or a family id; neither is a secret.
func TokenKey(id string) string { return "token:" + id }

// Revocations void tokens and grants.
type Revocations struct {
	store, durable store.Store
	logger         *slog.Logger

	loaded  atomic.Bool
	loading sync.Mutex
}

// New returns the revocations in a store and a durable store, which may be the same.
func New(inFlight, durable store.Store, logger *slog.Logger) *Revocations {
	r := &Revocations{store: inFlight, durable: durable, logger: logger}
	r.loaded.Store(durable == inFlight) // nothing to copy
	return r
}

// Revoke voids an access token or a whole grant, by its id, for the time it has left and a
// little longer, because clocks differ.
func (r *Revocations) Revoke(ctx context.Context, id string, left time.Duration) error {
	left += time.Minute
	err := r.store.Put(ctx, TokenKey(id), tokenRevoked, left)
	if r.durable == r.store {
		return err
	}
	until, _ := time.Now().Add(left).MarshalText() // fails only after the year 9999
	return errors.Join(err, r.durable.Put(ctx, revokedPrefix+id, until, left))
}

const revokedPrefix = "revoked:"

// Revoked reports whether an access token was revoked, by itself or with its grant.
func (r *Revocations) Revoked(ctx context.Context, tokenID string) (bool, error) {
	if err := r.loadRevocations(ctx); err != nil {
		return false, err
	}
	family, _, member := strings.Cut(tokenID, ".")
	revoked, err := r.isRevoked(ctx, tokenID)
	if member && err == nil && !revoked {
		return r.isRevoked(ctx, family)
	}
	return revoked, err
}

func (r *Revocations) isRevoked(ctx context.Context, id string) (bool, error) {
	state, err := r.store.Get(ctx, TokenKey(id))
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	return bytes.Equal(state, tokenRevoked), err
}

// loadRevocations copies the entries of the durable store, once. Until that has succeeded,
// no token is valid.
func (r *Revocations) loadRevocations(ctx context.Context) error {
	if r.loaded.Load() {
		return nil
	}
	r.loading.Lock()
	defer r.loading.Unlock()
	if r.loaded.Load() { // while waiting
		return nil
	}
	keys, err := r.durable.List(ctx, revokedPrefix)
	if err != nil {
		return fmt.Errorf("reading the revocations: %w", err)
	}
	for _, key := range keys {
		if err := r.loadRevocation(ctx, key); err != nil {
			return fmt.Errorf("reading a revocation: %w", err)
		}
	}
	if err := r.loadCutoffs(ctx); err != nil {
		return err
	}
	r.loaded.Store(true)
	return nil
}

func (r *Revocations) loadRevocation(ctx context.Context, key string) error {
	until, err := readTime(ctx, r.durable, key)
	left := time.Until(until)
	if err != nil || left <= 0 {
		return err
	}
	return r.store.Put(ctx, TokenKey(strings.TrimPrefix(key, revokedPrefix)), tokenRevoked, left)
}
