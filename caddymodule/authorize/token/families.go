package token

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/revocation"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

var errInvalidRefreshToken = oauth2.InvalidGrant("the refresh token is unknown, expired, revoked or used already")

// families are the grants that can be refreshed, each with its chain of refresh tokens.
type families struct {
	Lifetimes
	durable     store.Store
	clients     *client.Registry
	accounts    *people.Accounts
	grants      *Grants
	revocations *revocation.Revocations
	trail       *audit.Recorder
	logger      *slog.Logger
}

// start makes the first refresh token of a grant, or returns "" if it has none. It runs
// before the code is redeemed, and replaces what a failed attempt left. If another request
// redeems the code first, redeem deletes the family.
func (fs *families) start(ctx context.Context, g *Grant) (string, error) {
	if !g.wantsRefresh() {
		return "", nil
	}
	now, lifetime := time.Now(), fs.Refresh
	if g.online() {
		lifetime = min(lifetime, fs.Session)
	}
	lifetime = g.bounded(lifetime)
	f := &refreshFamily{Grant: g, Key: oauth2.RandomBytes(32), Expiry: now.Add(lifetime)}
	token := f.first(now)
	value, err := json.Marshal(f)
	if err != nil {
		return "", err
	}
	if err := fs.accounts.Keep(ctx, g.Provider, g.Subject, lifetime); err != nil {
		return "", err
	}
	if err := fs.durable.Put(ctx, familyKey(g.Family), value, time.Until(f.expires(fs.RefreshIdle))); err != nil {
		return "", fmt.Errorf("storing a refresh token: %w", err)
	}
	// A revocation sets the cutoff before it looks for families; this stores the family
	// before it looks for the cutoff. One of the two sees the other.
	void, err := fs.grants.revoked(ctx, g)
	if err == nil && void {
		err = errInvalidCode
	}
	if err != nil {
		return "", errors.Join(err, fs.durable.Delete(context.WithoutCancel(ctx), familyKey(g.Family)))
	}
	return token, nil
}

// find returns the family that a token names, and its stored form.
func (fs *families) find(ctx context.Context, token string) (*refreshFamily, []byte, error) {
	id := familyID(token)
	if id == "" {
		return nil, nil, errInvalidRefreshToken
	}
	stored, err := fs.durable.Get(ctx, familyKey(id))
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil, errInvalidRefreshToken
	}
	f := new(refreshFamily)
	if err == nil {
		err = json.Unmarshal(stored, f)
	}
	return f, stored, err
}

// load returns the family with an id, or nil.
func (fs *families) load(ctx context.Context, id string) (*refreshFamily, error) {
	return store.GetJSON[refreshFamily](ctx, fs.durable, familyKey(id))
}

// redeemable returns the grant of a refresh token, with the requested scope. It checks the
// client first, so that another client's request changes nothing.
func (fs *families) redeemable(ctx context.Context, f *refreshFamily, client *client.Client, token, asked string) (*Grant, error) {
	if f.Grant.ClientID != client.ID {
		return nil, oauth2.InvalidGrant("the refresh token was given to another client")
	}
	switch fs.state(f, token) {
	case unknownToken:
		return nil, errInvalidRefreshToken
	case reusedToken:
		return nil, fs.revokeReplayed(ctx, f)
	}
	if err := fs.check(ctx, f, client); err != nil {
		return nil, err
	}
	g := *f.Grant
	g.Nonce = "" // of the sign-in only (OpenID Connect Core §12.2)
	var err error
	g.Scope, err = narrowScope(g.Scope, asked)
	return &g, err
}

// state returns what a token is to its family. If an earlier process issued the current
// token, the response may have been lost with it, so the grace period counts from the start
// of this one.
func (fs *families) state(f *refreshFamily, token string) tokenState {
	rotated := f.IssuedAt
	if start := fs.Started(); rotated.Before(start) {
		rotated = start
	}
	return f.state(token, time.Since(rotated) < fs.RefreshGrace)
}

func (fs *families) revokeReplayed(ctx context.Context, f *refreshFamily) error {
	g := f.Grant
	err := fs.revoke(ctx, g)
	fs.trail.Record(ctx, audit.Event{Kind: audit.Revocation, User: g.User, ClientID: g.ClientID, Scope: g.ScopeText(), Grant: "refresh_token", Reason: "a refresh token was used twice", Err: err})
	if err != nil {
		return fmt.Errorf("revoking what a refresh token gave that was used twice: %w", err)
	}
	return errInvalidRefreshToken
}

// revoke revokes a grant with its refresh tokens and access tokens.
func (fs *families) revoke(ctx context.Context, g *Grant) error {
	err := errors.Join(fs.revocations.Revoke(ctx, g.Family, keyring.Retention), fs.durable.Delete(ctx, familyKey(g.Family)))
	if err == nil {
		fs.revocations.LimitRevocations(ctx, g.User, g.ClientID, g.Family)
	}
	return err
}

// check refuses a grant that was revoked or has expired, or that its person, session or
// client no longer allows.
func (fs *families) check(ctx context.Context, f *refreshFamily, client *client.Client) error {
	g := f.Grant
	void, err := fs.grants.revoked(ctx, g)
	switch {
	case err != nil:
		return err
	case void || !time.Now().Before(f.expires(fs.RefreshIdle)):
		return errInvalidRefreshToken
	}
	if err := fs.grants.checkAllowed(ctx, g, client); err != nil || !g.online() {
		return err
	}
	_, err = fs.durable.Get(ctx, session.Key(g.Session))
	if errors.Is(err, store.ErrNotFound) {
		return oauth2.InvalidGrant("the person has signed out")
	}
	return err
}

// rotate returns the next refresh token: a new one, or within the grace period the same one
// again.
func (fs *families) rotate(ctx context.Context, f *refreshFamily, stored []byte, token string) (string, error) {
	if !f.isCurrent(token) {
		return f.successor(token), nil
	}
	next := f.rotate(token, time.Now())
	value, err := json.Marshal(f)
	if err != nil {
		return "", err
	}
	return next, fs.durable.Swap(ctx, familyKey(f.Grant.Family), stored, value, time.Until(f.expires(fs.RefreshIdle)))
}

// clientOf returns the client of a refresh token sent without a client_id, as some public
// clients do, which have no credentials to send either.
func (fs *families) clientOf(ctx context.Context, p oauth2.Parameters) (*client.Client, error) {
	f, _, err := fs.find(ctx, p.Get("refresh_token"))
	if err != nil {
		return nil, err
	}
	client, err := fs.clients.Find(ctx, f.Grant.ClientID)
	if err == nil && (client == nil || !client.Public()) {
		err = oauth2.InvalidClient("client_id is missing")
	}
	return client, err
}

// maxFamilies is how many grants of one person to one client can be refreshed. Expired ones
// do not count, so that frequent short sessions do not displace a long-lived grant on a
// phone.
const maxFamilies = 200

// list is that of the families of a person and a client.
func (fs *families) list(ctx context.Context, user, clientID string) store.RecentList {
	return store.RecentList{
		Store: fs.durable, Key: store.Key("families", user+"\x00"+clientID), Max: maxFamilies, TTL: fs.Refresh,
		Ended: func(id string) (bool, error) {
			_, err := fs.durable.Get(ctx, familyKey(id))
			if errors.Is(err, store.ErrNotFound) {
				return true, nil
			}
			return false, err
		},
	}
}

// enforceLimit drops the oldest families of a person and client if there are too many. The
// client already has its token, so a failure is only logged.
func (fs *families) enforceLimit(ctx context.Context, g *Grant) {
	list := fs.list(ctx, g.User, g.ClientID)
	dropped, err := list.Add(ctx, g.Family)
	for _, id := range dropped {
		err = errors.Join(err, fs.durable.Delete(ctx, familyKey(id)))
	}
	if err != nil {
		fs.logger.ErrorContext(ctx, "refresh tokens of a person and a client not counted", "client_id", g.ClientID, "error", err)
	}
}
