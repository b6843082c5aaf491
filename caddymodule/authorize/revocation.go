package authorize

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// What the store says of an access token, or of all that one grant gave.
var (
	tokenUsed    = []byte("its code was used")
	tokenRevoked = []byte("revoked")
)

// tokenKey names the entry of a jti or of a family; neither is a secret.
func tokenKey(id string) string { return "token:" + id }

// newTokenID makes the jti of an access token of a family. It begins with the
// family's id, so that one entry revokes all that a grant gave, those tokens
// included that are being made at that very moment, and nobody needs to keep a
// list of them.
//
// The rest of it begins with the nanosecond: iat tells seconds, and a token of the second
// in which everything was ended may be from before that or after.
func newTokenID(family string, at time.Time) string { return family + "." + datedID(at) }

// datedID is a random id that begins with a time.
func datedID(at time.Time) string {
	dated := binary.BigEndian.AppendUint64(nil, uint64(at.UnixNano()))
	return base64.RawURLEncoding.EncodeToString(append(dated, oauth2.RandomBytes(familyIDSize)...))
}

// issuedAt is when the access token with a jti was issued; the zero time where the jti
// is of a version that did not tell.
func issuedAt(tokenID string) time.Time {
	dated, err := base64.RawURLEncoding.DecodeString(tokenID[strings.LastIndexByte(tokenID, '.')+1:])
	if err != nil || len(dated) != 8+familyIDSize {
		return time.Time{}
	}
	return time.Unix(0, int64(binary.BigEndian.Uint64(dated)))
}

// revocations are in the store, where each check of an access token looks, and
// a second time in the durable store, from where they come back after a restart.
type revocations struct {
	store, durable store.Store
	logger         *slog.Logger

	loaded  atomic.Bool
	loading sync.Mutex
}

func newRevocations(inFlight, durable store.Store, logger *slog.Logger) *revocations {
	r := &revocations{store: inFlight, durable: durable, logger: logger}
	r.loaded.Store(durable == inFlight) // then they need no second place
	return r
}

// revoke makes an access token void, or all that a grant gave, for as long as
// there is something to live, and a little more for clocks that are late.
func (r *revocations) revoke(ctx context.Context, id string, left time.Duration) error {
	left += time.Minute
	err := r.store.Put(ctx, tokenKey(id), tokenRevoked, left)
	if r.durable == r.store {
		return err
	}
	until, _ := time.Now().Add(left).MarshalText() // fails for years with five digits alone
	return errors.Join(err, r.durable.Put(ctx, revokedPrefix+id, until, left))
}

const revokedPrefix = "revoked:"

// Revoked says whether an access token of ours was revoked, by its jti: by
// itself or with its family.
func (r *revocations) Revoked(ctx context.Context, tokenID string) (bool, error) {
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

func (r *revocations) isRevoked(ctx context.Context, id string) (bool, error) {
	state, err := r.store.Get(ctx, tokenKey(id))
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	return bytes.Equal(state, tokenRevoked), err
}

// loadRevocations takes into the store what the durable one knows, once. Until
// that has succeeded, no token can be told to be good.
func (r *revocations) loadRevocations(ctx context.Context) error {
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

func (r *revocations) loadRevocation(ctx context.Context, key string) error {
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
	return r.store.Put(ctx, tokenKey(strings.TrimPrefix(key, revokedPrefix)), tokenRevoked, left)
}
