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

// What the store says of an access token, or of all that one grant gave.
var (
	CodeRedeemed = []byte("its code was used")
	tokenRevoked = []byte("revoked")
)

// TokenKey names the entry of a jti or of a family; neither is a secret.
func TokenKey(id string) string { return "token:" + id }

// Revocations are in the store, where each check of an access token looks, and
// a second time in the durable store, from where they come back after a restart.
type Revocations struct {
	store, durable store.Store
	logger         *slog.Logger

	loaded  atomic.Bool
	loading sync.Mutex
}

// New looks at inFlight, and keeps a second copy in durable where that is another store.
func New(inFlight, durable store.Store, logger *slog.Logger) *Revocations {
	r := &Revocations{store: inFlight, durable: durable, logger: logger}
	r.loaded.Store(durable == inFlight) // then they need no second place
	return r
}

// Revoke makes an access token void, or all that a grant gave, for as long as
// there is something to live, and a little more for clocks that are late.
func (r *Revocations) Revoke(ctx context.Context, id string, left time.Duration) error {
	left += time.Minute
	err := r.store.Put(ctx, TokenKey(id), tokenRevoked, left)
	if r.durable == r.store {
		return err
	}
	until, _ := time.Now().Add(left).MarshalText() // fails for years with five digits alone
	return errors.Join(err, r.durable.Put(ctx, revokedPrefix+id, until, left))
}

const revokedPrefix = "revoked:"

// Revoked says whether an access token of ours was revoked, by its jti: by
// itself or with its family.
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

// loadRevocations takes into the store what the durable one knows, once. Until
// that has succeeded, no token can be told to be good.
func (r *Revocations) loadRevocations(ctx context.Context) error {
	if r.loaded.Load() {
		return nil
	}
	r.loading.Lock()
	defer r.loading.Unlock()
	if r.loaded.Load() { // by another while we waited
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
	text, err := r.durable.Get(ctx, key)
	if errors.Is(err, store.ErrNotFound) { // its time has just come
		return nil
	}
	var until time.Time
	if err == nil {
		err = until.UnmarshalText(text)
	}
	left := time.Until(until)
	if err != nil || left <= 0 {
		return err
	}
	return r.store.Put(ctx, TokenKey(strings.TrimPrefix(key, revokedPrefix)), tokenRevoked, left)
}
