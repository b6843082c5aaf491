package authorize

import (
	"context"
	"errors"
	"time"
)

func accountKey(id string) string { return "account:" + id }

// accountLifetime is how long a sign-in and what it gives at once refer to a
// federated person.
func (s *Server) accountLifetime() time.Duration {
	return s.sessionLifetime + s.codeLifetime + s.accessTokenLifetime + time.Minute
}

// keepAccount makes the account of a grant's person, or what links them to the
// provider that they came by, outlive their session, for as long as there is a refresh
// token of theirs.
func (s *Server) keepAccount(ctx context.Context, g *grant, lifetime time.Duration) error {
	p := s.providers[g.Provider]
	if p == nil {
		return nil
	}
	id := accountID(p.Issuer, g.Subject)
	value, err := s.store.Get(ctx, accountKey(id))
	if errors.Is(err, ErrNotFound) { // removed in this very moment
		return nil
	}
	if err != nil {
		return err
	}
	return s.durable.Put(ctx, keptAccountPrefix+id, value, lifetime+s.accountLifetime())
}

// turnAway refuses a person, and ends the account that the same provider let them have
// before: with it sessions and tokens end, for as long as the person is not let in
// again. The identity must be that of an ID token that has just been verified, so that
// nobody but the provider can end anything. An account that another idp of the same
// issuer let in last is that one's to end.
func (s *Server) turnAway(ctx context.Context, p *provider, id identity) error {
	stored, err := s.storedAccount(ctx, id.user.ID)
	if stored != nil && trailOf(ctx).user == "" {
		trailOf(ctx).user = id.user.ID
	}
	if err == nil && stored != nil && stored.Provider == p.Key {
		// That which brings the other back goes first.
		err = errors.Join(s.durable.Delete(ctx, keptAccountPrefix+id.user.ID), s.store.Delete(ctx, accountKey(id.user.ID)))
	}
	refusal := *errNotAllowed
	refusal.Err = err
	return &refusal
}

const keptAccountPrefix = "kept-account:"

// keptAccount brings an account back that was kept, so that the next who asks
// for it finds it in the store.
func (s *Server) keptAccount(ctx context.Context, id string) ([]byte, error) {
	value, err := s.durable.Get(ctx, keptAccountPrefix+id)
	if err != nil {
		return nil, err
	}
	return value, s.store.Put(ctx, accountKey(id), value, s.accountLifetime())
}
