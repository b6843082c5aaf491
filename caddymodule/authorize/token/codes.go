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

// maxCodesPerUser is the maximum number of codes per user, including redeemed codes.
const maxCodesPerUser = 200

// Codes issues and redeems authorization codes.
type Codes struct {
	lifetime    time.Duration
	store       store.Store
	durable     store.Store
	userLimit   *store.PerUserLimit
	grants      *Grants
	families    *tokenFamilies
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
	calls := append(cs.userLimit.Record(g.User, key, revocation.UsedCodeKey(g.Family)), &store.Call{Op: store.Add, Key: key, Value: value, TTL: cs.lifetime})
	return code, store.NewStep(cs.store, calls...), nil
}

// findRedeemable returns the grant of a code after all checks that do not write. It checks the entire request first, so that
// only the client with its credentials and PKCE verifier can mark the code as used.
func (cs *Codes) findRedeemable(ctx context.Context, client *client.Client, p oauth2.Parameters) (*Grant, error) {
	g, err := cs.find(ctx, p.Get("code"))
	if err != nil {
		return nil, err
	}
	if err := g.checkRequest(client, p); err != nil {
		return nil, err
	}
	err = cs.checkGrant(ctx, g, client)
	if _, isInvalid := errors.AsType[*oauth2.Error](err); !isInvalid {
		return g, err
	}
	// If the code was used, its tokens may still be valid.
	switch _, getErr := cs.store.Get(ctx, revocation.UsedCodeKey(g.Family)); {
	case errors.Is(getErr, store.ErrNotFound):
		return nil, err
	case getErr != nil:
		return nil, getErr
	}
	return nil, cs.revokeReplayedCode(ctx, g)
}

// redeem marks a code as used, stores its new family of refresh tokens and rereads whether the grant is valid, in one step per
// store. Exactly one of several concurrent requests succeeds and returns tokens, at any gateway. The mark is a separate entry,
// rather than a deletion of the code, so that later requests are recognized as replays.
//
// It does not reread whether the family was revoked, because PostgreSQL reads after writing the mark. By then, a replay may
// have revoked the family. The tokens are void in that case, but the request that used the code has still succeeded.
func (cs *Codes) redeem(ctx context.Context, client *client.Client, g *Grant, pending *pendingFamily) error {
	revocationCheck, err := cs.revocations.NewCheck(ctx, "", codeBinding(g))
	for err == nil {
		mark := &store.Call{Op: store.Add, Key: revocation.UsedCodeKey(g.Family), Value: revocation.CodeRedeemed, TTL: cs.lifetime}
		consent := cs.grants.consentCalls(g, client)
		err = store.Do(ctx, store.NewStep(cs.durable, append(pending.calls(), consent...)...), store.NewStep(cs.store, mark), revocationCheck.Step())
		switch {
		case err == nil:
			return cs.confirmRedeemed(ctx, client, g, revocationCheck, consent)
		case errors.Is(mark.Err, store.ErrExists):
			return cs.revokeReplayedCode(ctx, g)
		case errors.Is(err, store.ErrTooLong):
			err = pending.dropOldest(ctx)
		default:
			pending.discard(ctx, cs.store)
		}
	}
	return err
}

// confirmRedeemed returns an error if the code's grant was revoked before redemption. It then removes the stored family.
func (cs *Codes) confirmRedeemed(ctx context.Context, client *client.Client, g *Grant, revocationCheck *revocation.Check, consent []*store.Call) error {
	isRevoked, err := revocationCheck.IsRevoked(g.GrantedAt)
	if err == nil && isRevoked {
		err = errRevokedCode
	}
	if err == nil {
		err = cs.grants.checkConsentCalls(g, client, consent)
	}
	if err != nil && g.allowsRefresh() {
		err = errors.Join(err, cs.durable.Delete(context.WithoutCancel(ctx), familyKey(g.Family)))
	}
	return err
}

// revokeReplayedCode revokes the tokens of a replayed code, because one of the two senders is an
// attacker (RFC 6749 §4.1.2).
func (cs *Codes) revokeReplayedCode(ctx context.Context, g *Grant) error {
	err := cs.families.revoke(ctx, g)
	cs.trail.Record(ctx, audit.Event{Kind: audit.KindRevocation, ClientID: g.ClientID, User: g.User, Reason: "authorization code was replayed", Err: err})
	if err != nil {
		return fmt.Errorf("revoking tokens after replay of an authorization code: %w", err)
	}
	return errInvalidCode
}

// codeBinding returns the binding of a code, which always includes the session.
func codeBinding(g *Grant) revocation.Binding {
	return revocation.Binding{User: g.User, ClientID: g.ClientID, Session: g.Session, ShortLived: true}
}

// checkGrant returns an error if the grant of a code is revoked according to the local state.
func (cs *Codes) checkGrant(ctx context.Context, g *Grant, client *client.Client) error {
	revoked, err := cs.revocations.IsTokenRevoked(ctx, g.Family)
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
		return errRevokedCode
	}
	return cs.grants.checkClientPermits(ctx, g, client)
}

func (cs *Codes) find(ctx context.Context, code string) (*Grant, error) {
	if code == "" {
		return nil, oauth2.InvalidRequest("code parameter is missing")
	}
	g, err := store.GetJSON[Grant](ctx, cs.store, store.Key("code", code))
	if g == nil && err == nil {
		err = errInvalidCode
	}
	return g, err
}

var (
	errInvalidCode = oauth2.InvalidGrant("authorization code is unknown, expired or already used")
	errRevokedCode = oauth2.InvalidGrant("the user has signed out, or the grant was revoked")
)
