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

// Codes are the authorization codes.
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

// redeemable is the grant of a code that was not used yet. Everything that can be
// wrong with the request is checked before the code counts as used, so that nobody
// without the client's credentials and verifier can use up somebody's code.
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

// redeem uses a code up. Of several at once one succeeds, and none whose tokens could
// not be made: where this fails, nobody has been given any.
//
// That a code was used is an entry of its own rather than the code's absence, so that
// of many at once all but one see it, however they interleave; and it is the entry
// that becomes the revocation, so that there is always room for that.
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

// revokeReplayed revokes what a code gave that comes a second time: it was stolen
// before or after the first (RFC 6749 §4.1.2).
func (cs *Codes) revokeReplayed(ctx context.Context, g *Grant) error {
	err := cs.families.revoke(ctx, g)
	cs.trail.Record(ctx, audit.Event{Kind: audit.Revocation, ClientID: g.ClientID, User: g.User, Reason: "a code was used twice", Err: err})
	if err != nil {
		return fmt.Errorf("revoking what a code gave that was used twice: %w", err)
	}
	return errInvalidCode
}

// check refuses a code that ended before it was exchanged.
func (cs *Codes) check(ctx context.Context, g *Grant, client *client.Client) error {
	cutoff, err := cs.revocations.LatestCutoff(ctx, g.codeBinding())
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
	value, err := cs.store.Get(ctx, store.Key("code", code))
	if errors.Is(err, store.ErrNotFound) {
		return nil, errInvalidCode
	}
	if err != nil {
		return nil, err
	}
	g := new(Grant)
	return g, json.Unmarshal(value, g)
}

var errInvalidCode = oauth2.InvalidGrant("the code is unknown, expired or used already")
