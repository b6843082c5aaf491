package token

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/revocation"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// Codes issues and redeems authorization codes.
type Codes struct {
	lifetime    time.Duration
	store       store.Store
	durable     store.Store
	recent      *recentCodes
	grants      *Grants
	families    *families
	revocations *revocation.Revocations
	trail       *audit.Recorder
}

// Issue stores a grant under a new code (RFC 6749 §4.1.2).
func (cs *Codes) Issue(ctx context.Context, g *Grant) (string, error) {
	value, err := json.Marshal(g)
	if err != nil {
		return "", err
	}
	code := oauth2.RandomToken()
	key := store.Key("code", code)
	if err := cs.store.Add(ctx, key, value, cs.lifetime); err != nil {
		return "", err
	}
	return code, cs.enforceLimit(ctx, g, key)
}

// redeemable returns the grant of an unused code. It checks the whole request first, so
// that nobody without the client's credentials and verifier can use the code up.
func (cs *Codes) redeemable(ctx context.Context, client *client.Client, p oauth2.Parameters) (*Grant, error) {
	g, err := cs.find(ctx, p.Get("code"))
	if err != nil {
		return nil, err
	}
	if err := g.check(client, p); err != nil {
		return nil, err
	}
	switch _, err = cs.store.Get(ctx, revocation.TokenKey(g.Family)); {
	case errors.Is(err, store.ErrNotFound):
		return g, cs.check(ctx, g, client)
	case err != nil:
		return nil, err
	}
	return nil, cs.revokeReplayed(ctx, g)
}

// redeem marks a code as used. Of concurrent requests exactly one succeeds, and only that
// one returns tokens. The mark is an entry, rather than the absence of the code, so that
// later requests recognize a replay. A revocation replaces it, and so never lacks room.
func (cs *Codes) redeem(ctx context.Context, g *Grant) error {
	err := cs.store.Add(ctx, revocation.TokenKey(g.Family), revocation.CodeRedeemed, cs.lifetime)
	switch {
	case errors.Is(err, store.ErrExists):
		return cs.revokeReplayed(ctx, g)
	case err != nil && g.wantsRefresh():
		return errors.Join(err, cs.durable.Delete(context.WithoutCancel(ctx), familyKey(g.Family)))
	}
	return err
}

// revokeReplayed revokes the tokens of a code that is used twice, once by a thief
// (RFC 6749 §4.1.2).
func (cs *Codes) revokeReplayed(ctx context.Context, g *Grant) error {
	err := cs.families.revoke(ctx, g)
	cs.trail.Record(ctx, audit.Event{Kind: audit.Revocation, ClientID: g.ClientID, User: g.User, Reason: "a code was used twice", Err: err})
	if err != nil {
		return fmt.Errorf("revoking what a code gave that was used twice: %w", err)
	}
	return errInvalidCode
}

// check refuses a code whose grant has ended. Codes always end with the session.
func (cs *Codes) check(ctx context.Context, g *Grant, client *client.Client) error {
	binding := revocation.Binding{User: g.User, ClientID: g.ClientID, Session: g.Session, ShortLived: true}
	cutoff, err := cs.revocations.LatestCutoff(ctx, binding)
	switch {
	case err != nil:
		return err
	case revocation.IsCutOff(g.GrantedAt, cutoff):
		return oauth2.InvalidGrant("the person has signed out since, or the grant was revoked")
	}
	return cs.grants.checkAllowed(ctx, g, client)
}

func (cs *Codes) find(ctx context.Context, code string) (*Grant, error) {
	if code == "" {
		return nil, oauth2.InvalidRequest("code is missing")
	}
	g, err := store.GetJSON[Grant](ctx, cs.store, store.Key("code", code))
	if g == nil && err == nil {
		err = errInvalidCode
	}
	return g, err
}

var errInvalidCode = oauth2.InvalidGrant("the code is unknown, expired or used already")
