package revocation

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// Revocations void tokens and grants. They are in the durable store, and each check reads them
// near: in the store of what is in flight, to which they are copied, or, if several gateways
// share the durable store, in this gateway's copy of that.
type Revocations struct {
	near, durable store.Store
	inFlight      store.Store // has the marks of used codes
	logger        *slog.Logger

	loaded  atomic.Bool
	loading sync.Mutex
}

// New returns the revocations in a store and a durable store, which may be the same.
func New(inFlight, durable store.Store, logger *slog.Logger) *Revocations {
	r := &Revocations{near: inFlight, durable: durable, inFlight: inFlight, logger: logger}
	if store.IsShared(durable) { // the store follows them
		r.near = durable
	}
	r.loaded.Store(r.near == durable)
	return r
}

// Now is the time by which revocations and grants are dated: gateways that share a store
// have one clock.
func (r *Revocations) Now() time.Time { return store.Now(r.durable) }

const revokedPrefix = "revoked:"

// UsedCodeKey is the key that marks a grant's code as used.
func UsedCodeKey(family string) string { return "token:" + family }

// CodeRedeemed is the value of a used code's mark.
var CodeRedeemed = []byte("its code was used")

// Revoke voids an access token or a whole grant, by its id, for the time it has left, negative if it has expired, and
// [ClockJump] and a little longer, because clocks differ. In the same step it deletes what is over with it in
// the durable store. If the store is full, the mark of the grant's code, which is void too,
// makes room.
func (r *Revocations) Revoke(ctx context.Context, id string, left time.Duration, ended ...string) error {
	left += ClockJump + time.Minute
	until, _ := r.Now().Add(left).MarshalText() // fails only after the year 9999
	revoked := &store.Call{Op: store.Put, Key: revokedPrefix + id, Value: until, TTL: left}
	durable := append([]*store.Call{revoked}, deleting(ended)...)
	near := durable
	if r.durable != r.near {
		near = []*store.Call{revoked}
	}
	err := r.near.Do(ctx, near...)
	if errors.Is(err, store.ErrFull) {
		mark := &store.Call{Op: store.Delete, Key: UsedCodeKey(id)}
		err = store.Do(ctx, store.In(r.near, near...), store.In(r.inFlight, mark))
	}
	if r.durable != r.near {
		err = errors.Join(err, r.durable.Do(ctx, durable...))
	}
	return err
}

func deleting(keys []string) (calls []*store.Call) {
	for _, key := range keys {
		calls = append(calls, &store.Call{Op: store.Delete, Key: key})
	}
	return calls
}
