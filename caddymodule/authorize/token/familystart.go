package token

import (
	"context"
	"errors"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// familyStart is a family that is about to be stored, with its first token.
type familyStart struct {
	families *families
	token    string
	id       string
	value    []byte
	ttl      time.Duration
	list     store.RecentList // of the person's grants to the client
}

// calls returns the calls to the durable store that store the family and list it; none if
// there is no family. They fail with [store.ErrTooLong] if there are too many; see makeRoom.
func (s *familyStart) calls() []*store.Call {
	if s == nil {
		return nil
	}
	return []*store.Call{s.list.Adding(s.id), {Op: store.Put, Key: familyKey(s.id), Value: s.value, TTL: s.ttl}}
}

// makeRoom drops the person's oldest grants to the client.
func (s *familyStart) makeRoom(ctx context.Context) error {
	dropped, err := s.list.Fold(ctx, len(s.id))
	if err != nil {
		return err
	}
	var calls []*store.Call
	for _, id := range dropped {
		calls = append(calls, &store.Call{Op: store.Delete, Key: familyKey(id)})
	}
	return store.Do(ctx, store.In(s.families.durable, calls...))
}

// drop removes a family whose code could not be redeemed. Where code and family are in one
// store, nothing was stored, unless the answer was lost: then the family is left to expire at
// once, but only if it is this one. Another request with the code may have succeeded.
func (s *familyStart) drop(ctx context.Context, codes store.Store) {
	if s == nil {
		return
	}
	ctx, durable := context.WithoutCancel(ctx), s.families.durable
	var err error
	if codes == durable {
		err = durable.Swap(ctx, familyKey(s.id), s.value, s.value, time.Second)
	} else {
		err = durable.Delete(ctx, familyKey(s.id))
	}
	if err != nil && !errors.Is(err, store.ErrChanged) {
		// Nobody has its token, and it expires.
		s.families.logger.WarnContext(ctx, "a refresh token that was not given out stays stored", "error", err)
	}
}

// start makes the first refresh token of a grant, to be stored when its code is redeemed; nil
// if it has none.
func (fs *families) start(ctx context.Context, g *Grant) (*familyStart, error) {
	if !g.wantsRefresh() {
		return nil, nil
	}
	now, lifetime := fs.now(), fs.Refresh
	if g.online() {
		lifetime = min(lifetime, fs.Session)
	}
	lifetime = g.bounded(lifetime)
	f := &refreshFamily{Grant: g, Key: oauth2.RandomBytes(32), Expiry: now.Add(lifetime)}
	start := &familyStart{families: fs, token: f.first(now), id: g.Family, list: fs.list(ctx, g.User, g.ClientID)}
	err := fs.accounts.Keep(ctx, g.User, g.Provider, g.Subject, lifetime)
	if err == nil && !g.online() {
		g.Asked, err = fs.sessions.SignIns.Keep(ctx, g.Session, g.Provider, lifetime)
	}
	if err == nil {
		start.value, err = store.ToJSON(f)
	}
	start.ttl = f.expires(fs.RefreshIdle).Sub(now)
	return start, err
}
