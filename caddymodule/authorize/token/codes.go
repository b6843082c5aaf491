package token

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/revocation"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// maxCodes limits the codes per user, including redeemed codes.
const maxCodes = 200

// Codes issues and redeems authorization codes.
type Codes struct {
	lifetime    time.Duration
	store       store.Store
	durable     store.Store
	recent      *store.PerUserLimit
	grants      *Grants
	families    *families
	revocations *revocation.Revocations
	trail       *audit.Recorder
}

// Issue creates a code for a grant (RFC 6749 §4.1.2) and returns the step that stores the code.
func (cs *Codes) Issue(g *Grant) (code string, step store.Step, err error) {
	value, err := store.ToJSON(g)
	if err != nil {
		return "", step, err
	}
	code = oauth2.RandomToken()
	key := store.Key("code", code)
	calls := append(cs.recent.Record(g.User, key, revocation.UsedCodeKey(g.Family)), &store.Call{Op: store.Add, Key: key, Value: value, TTL: cs.lifetime})
	return code, store.StepIn(cs.store, calls...), nil
}

// redeemable returns the grant of a code after all checks that need no write. It checks the entire
// request first, so that only the client with its credentials and PKCE verifier can use the code up.
func (cs *Codes) redeemable(ctx context.Context, client *client.Client, p oauth2.Parameters) (*Grant, error) {
	g, err := cs.find(ctx, p.Get("code"))
	if err != nil {
		return nil, err
	}
	if err := g.check(client, p); err != nil {
		return nil, err
	}
	err = cs.check(ctx, g, client)
	if _, ended := errors.AsType[*oauth2.Error](err); !ended {
		return g, err
	}
	// The tokens of a used code may still be valid.
	switch _, getErr := cs.store.Get(ctx, revocation.UsedCodeKey(g.Family)); {
	case errors.Is(getErr, store.ErrNotFound):
		return nil, err
	case getErr != nil:
		return nil, getErr
	}
	return nil, cs.revokeReplayed(ctx, g)
}

// redeem marks a code as used, stores its new family of refresh tokens and rereads whether the
// grant is valid, in one step per store. Exactly one of several concurrent
// requests succeeds and returns tokens, at any gateway. The mark is a separate entry, rather than a deletion of the
// code, so that later requests are recognized as replays.
//
// It does not reread whether the family was revoked: PostgreSQL reads after writing the mark,
// and by then a replay may have revoked the family. The tokens are void in that case, but the
// request that used the code has still succeeded.
func (cs *Codes) redeem(ctx context.Context, client *client.Client, g *Grant, start *familyStart) error {
	check, err := cs.revocations.Check(ctx, "", codeBinding(g))
	for err == nil {
		mark := &store.Call{Op: store.Add, Key: revocation.UsedCodeKey(g.Family), Value: revocation.CodeRedeemed, TTL: cs.lifetime}
		consent := cs.grants.readingConsent(g, client)
		err = store.Do(ctx, store.StepIn(cs.durable, append(start.calls(), consent...)...), store.StepIn(cs.store, mark), check.Step())
		switch {
		case err == nil:
			return cs.confirm(ctx, client, g, check, consent)
		case errors.Is(mark.Err, store.ErrExists):
			return cs.revokeReplayed(ctx, g)
		case errors.Is(err, store.ErrTooLong):
			err = start.makeRoom(ctx)
		default:
			start.drop(ctx, cs.store)
		}
	}
	return err
}

// confirm rejects a code if its grant was revoked before redemption, and removes the stored family.
func (cs *Codes) confirm(ctx context.Context, client *client.Client, g *Grant, check *revocation.Check, consent []*store.Call) error {
	void, err := check.IsRevoked(g.GrantedAt)
	if err == nil && void {
		err = errEndedCode
	}
	if err == nil {
		err = cs.grants.checkReadConsent(g, client, consent)
	}
	if err != nil && g.wantsRefresh() {
		err = errors.Join(err, cs.durable.Delete(context.WithoutCancel(ctx), familyKey(g.Family)))
	}
	return err
}

// revokeReplayed revokes the tokens of a replayed code, because one of the two senders is an
// attacker (RFC 6749 §4.1.2).
func (cs *Codes) revokeReplayed(ctx context.Context, g *Grant) error {
	err := cs.families.revoke(ctx, g)
	cs.trail.Record(ctx, audit.Event{Kind: audit.Revocation, ClientID: g.ClientID, User: g.User, Reason: "a code was used twice", Err: err})
	if err != nil {
		return fmt.Errorf("revoking the tokens of a replayed code: %w", err)
	}
	return errInvalidCode
}

// codeBinding returns the binding of a code, which always includes the session.
func codeBinding(g *Grant) revocation.Binding {
	return revocation.Binding{User: g.User, ClientID: g.ClientID, Session: g.Session, ShortLived: true}
}

// check rejects a code if its grant is revoked according to the local state.
func (cs *Codes) check(ctx context.Context, g *Grant, client *client.Client) error {
	revoked, err := cs.revocations.Revoked(ctx, g.Family)
	if err != nil {
		return err
	}
	cutoff, err := cs.revocations.LatestCutoff(ctx, codeBinding(g))
	switch {
	case err != nil:
		return err
	case revoked:
		return errInvalidCode
	case revocation.IsCutOff(g.GrantedAt, cutoff):
		return errEndedCode
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

var (
	errInvalidCode = oauth2.InvalidGrant("the code is unknown, expired or used already")
	errEndedCode   = oauth2.InvalidGrant("the person has signed out since, or the grant was revoked")
)
