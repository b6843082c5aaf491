package flow

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/signin"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// sealedPushes are the pushed requests of public clients.
type sealedPushes struct {
	keys  keyring.Sealing
	store store.Store // remembers what was used, if gateways share it
	used  usedPushes
}

// seal puts a public client's request into its request_uri, which nobody can guess, read or
// change (RFC 9126 §2.2, §7.1). It is no longer than the address of the sign-in page, which
// holds the same request.
func (ps *sealedPushes) seal(ctx context.Context, client *client.Client, query string) (*pushedResponse, error) {
	id := oauth2.RandomBytes(len(pushID{}))
	sealed, err := ps.keys.Seal(ctx, string(id)+query, sealPurpose(client.ID))
	if err != nil {
		return nil, err
	}
	return &pushedResponse{pushedPrefix + sealed, int64(pushedLifetime.Seconds())}, nil
}

func (ps *sealedPushes) unseal(ctx context.Context, clientID, sealed string) (*pushedRequest, error) {
	text, err := ps.keys.Unseal(ctx, sealed, sealPurpose(clientID), pushedLifetime)
	switch {
	case errors.Is(err, keyring.ErrUnsealed):
		return nil, errRequestURIUsed
	case err != nil:
		return nil, err
	}
	id := pushID([]byte(text[:len(pushID{})]))
	once, err := ps.onlyOnce(ctx, id)
	return &pushedRequest{text[len(id):], once}, err
}

// onlyOnce returns the use of a sealed request. Gateways that share a store remember it there,
// for the time that the request lasts.
func (ps *sealedPushes) onlyOnce(ctx context.Context, id pushID) (*signin.Once, error) {
	if !store.IsShared(ps.store) {
		return ps.used.onlyOnce(id)
	}
	used := &store.Call{Op: store.Add, Key: store.Key("pushed-used", string(id[:])), TTL: pushedLifetime}
	switch _, err := ps.store.Get(ctx, used.Key); {
	case err == nil:
		return nil, errRequestURIUsed
	case !errors.Is(err, store.ErrNotFound):
		return nil, err
	}
	return &signin.Once{Store: ps.store, Call: used, Spent: errRequestURIUsed}, nil
}

// isSealed reports whether a reference has a dot, as only those of sealed requests do.
func isSealed(reference string) bool { return strings.Contains(reference, ".") }

func sealPurpose(clientID string) string { return "pushed " + clientID }

// pushID names a sealed request, whose reference can be written in several ways.
type pushID [16]byte

// maxUsedPushes is how many used requests are remembered at least, in some 10 MiB.
const maxUsedPushes = 1 << 17

// usedPushes are the sealed requests that were used at a single gateway; pushing alone takes
// no memory.
//
// There are two generations: when the younger is full, or as old as a request can get, the
// older is dropped. This bounds the memory without stopping other sign-ins. At worst, somebody
// who uses hundreds of thousands of requests can use one of their own twice, which RFC 9126 §4
// allows. Unlike a boundedcache, this drops expired requests without looking at each.
type usedPushes struct {
	mu             sync.Mutex
	younger, older map[pushID]struct{}
	since          time.Time // when the younger generation began
}

// onlyOnce returns the use of a request.
func (u *usedPushes) onlyOnce(id pushID) (*signin.Once, error) {
	if u.has(id) {
		return nil, errRequestURIUsed
	}
	return &signin.Once{After: func() error {
		if !u.add(id) {
			return errRequestURIUsed
		}
		return nil
	}}, nil
}

// add adds a request, and reports whether this is its first use.
func (u *usedPushes) add(id pushID) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.younger) >= maxUsedPushes || time.Since(u.since) > pushedLifetime {
		u.older, u.younger, u.since = u.younger, map[pushID]struct{}{}, time.Now()
	}
	if u.holds(id) {
		return false
	}
	u.younger[id] = struct{}{}
	return true
}

func (u *usedPushes) has(id pushID) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.holds(id)
}

// holds is has with the lock held.
func (u *usedPushes) holds(id pushID) bool {
	_, younger := u.younger[id]
	_, older := u.older[id]
	return younger || older
}
