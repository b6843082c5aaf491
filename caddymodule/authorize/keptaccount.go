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
