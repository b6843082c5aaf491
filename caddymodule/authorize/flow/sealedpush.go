package flow

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
)

// sealPushed gives a public client a reference that holds its request: sealed, so
// that nobody can guess, read or change one, for this client and for pushedLifetime
// (RFC 9126 §2.2, §7.1). It is as long as the address of the sign-in page, which
// holds the same request in the same way, and so is no longer than browsers are sent
// to anyhow.
func (ps *pushes) sealPushed(ctx context.Context, client *client.Client, query string) (*pushedResponse, error) {
	id := oauth2.RandomBytes(len(pushID{}))
	sealed, err := ps.keys.Seal(ctx, string(id)+query, pushBinding(client.ID))
	if err != nil {
		return nil, err
	}
	return &pushedResponse{pushedPrefix + sealed, int64(pushedLifetime.Seconds())}, nil
}

// openPushed opens a reference that was not used yet.
func (ps *pushes) openPushed(ctx context.Context, clientID, sealed string) (*pushedRequest, error) {
	text, err := ps.keys.Unseal(ctx, sealed, pushBinding(clientID), pushedLifetime)
	if errors.Is(err, keyring.ErrUnsealed) {
		return nil, errSpentPush
	}
	if err != nil {
		return nil, err
	}
	id := pushID([]byte(text[:len(pushID{})]))
	if ps.spent.has(id) {
		return nil, errSpentPush
	}
	return &pushedRequest{text[len(id):], func(context.Context) error {
		if !ps.spent.spend(id) {
			return errSpentPush
		}
		return nil
	}}, nil
}

// isSealed tells references apart: of the two kinds, one alone has a dot.
func isSealed(reference string) bool { return strings.Contains(reference, ".") }

func pushBinding(clientID string) string { return "pushed " + clientID }

// pushID names a sealed request. What counts as used is the id, and not the text of
// the reference, which can be written in several ways.
type pushID [16]byte

// maxSpentPushes is how many used requests are remembered at least, of the last
// ones; they take some 10 MiB.
const maxSpentPushes = 1 << 17

// spentPushes are the sealed requests that were used. Pushing a request takes no room
// here, using it does.
//
// When the younger of two generations is full, or as old as a request can get, the older
// is dropped. So there is a bound, and using up requests by the hundred thousand keeps
// nobody else from signing in. At worst a request works twice, which RFC 9126 §4 allows.
//
// This is no boundedcache: it drops what has expired without a look at each request, and
// a request tried again does not stay longer than others.
type spentPushes struct {
	mu             sync.Mutex
	younger, older map[pushID]struct{}
	since          time.Time // when the younger generation began
}

// spend says whether a request was not used before; now it is.
func (s *spentPushes) spend(id pushID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.younger) >= maxSpentPushes || time.Since(s.since) > pushedLifetime {
		s.older, s.younger, s.since = s.younger, map[pushID]struct{}{}, time.Now()
	}
	if s.holds(id) {
		return false
	}
	s.younger[id] = struct{}{}
	return true
}

// has says whether a request was used before.
func (s *spentPushes) has(id pushID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.holds(id)
}

// holds is has with the lock held.
func (s *spentPushes) holds(id pushID) bool {
	_, spent := s.younger[id]
	_, before := s.older[id]
	return spent || before
}
