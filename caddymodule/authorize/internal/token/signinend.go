package token

import (
	"context"
	"errors"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/internal/revalidation"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/internal/session"
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
	apps, _, err := r.apps.load(ctx, s.User)
	for _, app := range apps {
		ids, listing := r.families.list(ctx, s.User, app.ClientID).Items(ctx, familyIDSize)
		values, reading := store.Values(ctx, r.durable, familyKeys(ids)...)
		err = errors.Join(err, listing, reading)
		for _, value := range values {
			f, reading := store.FromJSON[refreshFamily](value)
			err = errors.Join(err, reading)
			if f != nil && f.Grant.Session == s.SID && f.Grant.Provider == s.Provider {
				err = errors.Join(err, r.endGrant(ctx, f.Grant))
			}
		}
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
