package token

import (
	"context"
	"errors"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/revalidation"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// EndSignIn ends what came of a sign-in at an identity provider: the session, if its person has not
// signed in to it another way since, and the grants that outlive it. It can be repeated.
func (r *Revoker) EndSignIn(ctx context.Context, s revalidation.SignIn) error {
	stored, err := r.sessions.Find(ctx, s.SID)
	switch {
	case err == nil && stored == nil: // its access tokens may last
		err = r.revocations.EndSession(ctx, s.SID, nil, nil)
	case errors.Is(err, session.ErrUnreadable), err == nil && stored.Provider == s.Provider:
		_, err = r.sessions.EndByID(ctx, s.SID)
	}
	return errors.Join(err, r.endGrantsOf(ctx, s))
}

// endGrantsOf revokes the grants of a sign-in that can be refreshed.
func (r *Revoker) endGrantsOf(ctx context.Context, s revalidation.SignIn) error {
	keys, err := r.families.keysOf(ctx, s.User, "")
	var grants []*Grant
	reading := store.Each(ctx, r.durable, keys, func(some []*refreshFamily) error {
		for _, f := range some {
			if g := f.Grant; g.User == s.User && g.Session == s.SID && g.Provider == s.Provider {
				grants = append(grants, g)
			}
		}
		return nil
	})
	err = errors.Join(err, reading)
	for _, g := range grants {
		err = errors.Join(err, r.endGrant(ctx, g))
	}
	return err
}

func (r *Revoker) endGrant(ctx context.Context, g *Grant) error {
	err := r.families.revoke(ctx, g)
	r.families.trail.Record(ctx, audit.Event{
		Kind: audit.Revocation, User: g.User, ClientID: g.ClientID, Scope: g.ScopeText(), Person: audit.Person{Provider: g.Provider, Subject: g.Subject},
		Reason: audit.SessionEndReason(ctx), Err: err,
	})
	return err
}
