package authorize

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
)

// The scopes that ask for a refresh token: one that works on when the person has
// left, and one that ends with their session (SMART App Launch 2.2, Scopes for
// requesting a refresh token).
const (
	offlineAccess = "offline_access"
	onlineAccess  = "online_access"
)

var errBadRefreshToken = oauth2.InvalidGrant("the refresh token is unknown, expired, revoked or used already")

// mayRefresh says whether the client can ever be given a refresh token.
func (c *Client) mayRefresh() bool {
	return c.mayRespond("code") && (slices.Contains(c.Scopes, offlineAccess) || slices.Contains(c.Scopes, onlineAccess))
}

// refreshes says whether a grant asks for a refresh token.
func (g *grant) refreshes() bool { return g.has(offlineAccess) || g.has(onlineAccess) }

// online says whether a grant's refresh token ends with the session.
func (g *grant) online() bool { return !g.has(offlineAccess) }

// endsWith is the sid of the session that a grant's access tokens end with, or "".
func (g *grant) endsWith() string {
	if g.online() {
		return g.Session
	}
	return ""
}

// families are the grants that can be refreshed, each with its chain of refresh tokens.
type families struct {
	durable     store.Store
	clients     *registry
	accounts    *accounts
	grants      *grants
	revocations *revocations
	trail       *recorder
	logger      *slog.Logger

	// lifetime is how long a grant can be refreshed in all, idleLifetime how long a
	// refresh token can wait for its use, and sessionLifetime how long one lives at most
	// that ends with the session.
	lifetime, idleLifetime, sessionLifetime time.Duration

	// grace is how long after its use a refresh token gives the same successor once more;
	// for what an earlier process stored it counts from started.
	grace   time.Duration
	started func() time.Time
}

// startFamily makes the first refresh token of a grant that asks for one, or "". It
// comes before the code is used up, and after a try that failed the family may be
// there already, with a token that nobody was given: this one takes its place. Who
// uses the code up too removes the family after that, so one that is stored here and
// loses ends as well.
func (fs *families) startFamily(ctx context.Context, g *grant) (string, error) {
	if !g.refreshes() {
		return "", nil
	}
	now, lifetime := time.Now(), fs.lifetime
	if g.online() {
		lifetime = min(lifetime, fs.sessionLifetime)
	}
	f := &refreshFamily{Grant: g, Key: oauth2.RandomBytes(32), Expiry: now.Add(lifetime)}
	token := f.first(now)
	value, err := json.Marshal(f)
	if err != nil {
		return "", err
	}
	if err := fs.accounts.keepAccount(ctx, g.Provider, g.Subject, lifetime); err != nil {
		return "", err
	}
	if err := fs.durable.Put(ctx, familyKey(g.Family), value, time.Until(f.end(fs.idleLifetime))); err != nil {
		return "", fmt.Errorf("storing a refresh token: %w", err)
	}
	// Whoever ends everything looks for families after setting the cutoff, and this for
	// the cutoff after storing the family: so one of the two ends it.
	void, err := fs.grants.grantVoid(ctx, g)
	if err == nil && void {
		err = errSpentCode
	}
	if err != nil {
		return "", errors.Join(err, fs.durable.Delete(context.WithoutCancel(ctx), familyKey(g.Family)))
	}
	return token, nil
}

// exchangeRefreshToken is the refresh token grant (RFC 6749 §6). The token is
// followed by a new one. Who comes with one that was followed already is a thief,
// or the thief was here before (RFC 9700 §4.14.2): all that the grant gave ends.
// A client that repeats a request, because the answer did not reach it, is not
// taken for one: for a moment it is given the same successor once more. To a
// thief who is as fast this gives nothing new, because thief and client now hold
// the same token, and the second of them to use it is noticed.
func (e *tokenEndpoint) exchangeRefreshToken(ctx context.Context, client *Client, p oauth2.Parameters) (*tokenResponse, error) {
	token := p.Get("refresh_token")
	if token == "" {
		return nil, oauth2.InvalidRequest("refresh_token is missing")
	}
	for ctx.Err() == nil {
		response, err := e.useRefreshToken(ctx, client, token, p.Get("scope"))
		if !errors.Is(err, store.ErrChanged) {
			return response, err
		}
	}
	return nil, ctx.Err()
}

// useRefreshToken gives what a refresh token is good for. The token that follows it
// is stored last: whatever fails before, the client can try again. Where another
// request uses the token at the same time, the error is [store.ErrChanged], and the token is
// to be looked at once more, as one that was followed.
func (e *tokenEndpoint) useRefreshToken(ctx context.Context, client *Client, token, asked string) (*tokenResponse, error) {
	f, stored, err := e.families.family(ctx, token)
	if err != nil {
		return nil, err
	}
	g, err := e.families.checkRefresh(ctx, f, client, token, asked)
	if err != nil {
		return nil, err
	}
	t, err := e.tokens.issue(ctx, g, e.accessTokenLifetime)
	if err != nil {
		return nil, err
	}
	if t.refresh, err = e.families.rotate(ctx, f, stored, token); err != nil {
		return nil, err
	}
	return t.response(g.scope()), nil
}

// family reads the family that a token names, and the form in which it is stored.
func (fs *families) family(ctx context.Context, token string) (*refreshFamily, []byte, error) {
	id := familyOf(token)
	if id == "" {
		return nil, nil, errBadRefreshToken
	}
	stored, err := fs.durable.Get(ctx, familyKey(id))
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil, errBadRefreshToken
	}
	if err != nil {
		return nil, nil, err
	}
	f, err := parseFamily(stored)
	return f, stored, err
}

// checkRefresh says what a refresh token gives: the grant it goes back to, with
// the scope that is asked for. Whose token it is comes first: nobody else's
// request changes anything.
func (fs *families) checkRefresh(ctx context.Context, f *refreshFamily, client *Client, token, asked string) (*grant, error) {
	if f.Grant.ClientID != client.ID {
		return nil, oauth2.InvalidGrant("the refresh token was given to another client")
	}
	switch fs.standing(f, token) {
	case stranger:
		return nil, errBadRefreshToken
	case spent:
		return nil, fs.endStolenFamily(ctx, f)
	}
	if err := fs.stillGranted(ctx, f, client); err != nil {
		return nil, err
	}
	g := *f.Grant
	g.Nonce = "" // it belongs to the sign-in alone (OpenID Connect Core §12.2)
	var err error
	g.Scope, err = narrowScope(g.Scope, asked)
	return &g, err
}

// standing says how a token stands to its family. Where the current token was made by
// the process before this one, and the answer with it may have been lost as that ended,
// the grace counts from when this one began to serve.
func (fs *families) standing(f *refreshFamily, token string) standing {
	rotated := f.IssuedAt
	if start := fs.started(); rotated.Before(start) {
		rotated = start
	}
	return f.standing(token, time.Since(rotated) < fs.grace)
}

// endStolenFamily revokes what a family has given.
func (fs *families) endStolenFamily(ctx context.Context, f *refreshFamily) error {
	g := f.Grant
	err := fs.revokeFamily(ctx, g)
	fs.trail.record(ctx, audit.Event{Kind: audit.Revocation, User: g.User, ClientID: g.ClientID, Scope: g.scope(), Grant: "refresh_token", Reason: "a refresh token was used twice", Err: err})
	if err != nil {
		return fmt.Errorf("revoking what a refresh token gave that was used twice: %w", err)
	}
	return errBadRefreshToken
}

// revokeFamily ends a grant: its refresh tokens, and all access tokens.
func (fs *families) revokeFamily(ctx context.Context, g *grant) error {
	err := errors.Join(fs.revocations.revoke(ctx, g.Family, MaxAccessTokenLifetime), fs.durable.Delete(ctx, familyKey(g.Family)))
	if err == nil {
		fs.revocations.keepRevocation(ctx, g.User, g.ClientID, g.Family)
	}
	return err
}

// stillGranted refuses a grant that has ended since: it was revoked or has
// expired, its person is gone or the session it was bound to over, or the client
// may no longer have what it was granted.
func (fs *families) stillGranted(ctx context.Context, f *refreshFamily, client *Client) error {
	g := f.Grant
	void, err := fs.grants.grantVoid(ctx, g)
	switch {
	case err != nil:
		return err
	case void || !time.Now().Before(f.end(fs.idleLifetime)):
		return errBadRefreshToken
	}
	if err := fs.grants.stillAllowed(ctx, g, client); err != nil || !g.online() {
		return err
	}
	_, err = fs.durable.Get(ctx, sessionKey(g.Session))
	if errors.Is(err, store.ErrNotFound) {
		return oauth2.InvalidGrant("the person has signed out")
	}
	return err
}

// stillAllowed refuses a code or refresh token whose grant could not be given again.
func (gs *grants) stillAllowed(ctx context.Context, g *grant, client *Client) error {
	if again, err := grantScope(client, g.scope()); err != nil || !slices.Equal(again, g.Scope) {
		return oauth2.InvalidGrant("the client may no longer have what it was granted")
	}
	if !gs.accounts.offer(client).has(g.Provider) {
		return oauth2.InvalidGrant("the client no longer allows the way that the person signed in")
	}
	if err := gs.stillConsented(ctx, g, client); err != nil {
		return err
	}
	_, err := gs.grantUser(ctx, g)
	return err
}

// stillConsented refuses what a person let a client have and does not any more,
// where the client must have their consent.
func (gs *grants) stillConsented(ctx context.Context, g *grant, client *Client) error {
	if client.Consent != ConsentRequired {
		return nil
	}
	given, err := gs.consents.loadConsent(ctx, g.User, client.ID)
	if err == nil && (given == nil || !given.covers(g)) {
		err = oauth2.InvalidGrant("the person's consent has ended")
	}
	return err
}

// narrowScope is what is asked of a granted scope, all of it where nothing is
// (RFC 6749 §6).
func narrowScope(granted []string, asked string) ([]string, error) {
	if asked == "" {
		return granted, nil
	}
	scopes, err := smart.ParseScopes(asked)
	if err == nil {
		scopes, err = smart.Grant(scopes, granted)
	}
	if err != nil {
		return nil, &oauth2.Error{Code: "invalid_scope", Description: "the scope is malformed, or more than was granted", Err: err}
	}
	return scopes, nil
}

// rotate returns the token that follows one: a new one, or the same again where
// it was followed a moment ago.
func (fs *families) rotate(ctx context.Context, f *refreshFamily, stored []byte, token string) (string, error) {
	if !f.isCurrent(token) {
		return f.successor(token), nil
	}
	next := f.rotate(token, time.Now())
	value, err := json.Marshal(f)
	if err != nil {
		return "", err
	}
	return next, fs.durable.Swap(ctx, familyKey(f.Grant.Family), stored, value, time.Until(f.end(fs.idleLifetime)))
}

// refreshClient finds the client of a refresh token that comes to the token endpoint
// without a client_id, as some public clients send it. There is nothing else that
// such a client could prove who it is by.
func (fs *families) refreshClient(ctx context.Context, p oauth2.Parameters) (*Client, error) {
	f, _, err := fs.family(ctx, p.Get("refresh_token"))
	if err != nil {
		return nil, err
	}
	client, err := fs.clients.client(ctx, f.Grant.ClientID)
	if err == nil && (client == nil || !client.Public()) {
		err = oauth2.InvalidClient("client_id is missing")
	}
	return client, err
}

// withoutRefresh leaves out the scopes that ask for a refresh token, where there
// is none to be had (OpenID Connect Core §11).
func withoutRefresh(scope []string) []string {
	return slices.DeleteFunc(slices.Clone(scope), func(word string) bool {
		return word == offlineAccess || word == onlineAccess
	})
}
