package token

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/revocation"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
)

var errInvalidRefreshToken = oauth2.InvalidGrant("the refresh token is unknown, expired, revoked or used already")

// families are the grants that can be refreshed, each with its chain of refresh tokens.
type families struct {
	Lifetimes
	durable     store.Store
	clients     *client.Registry
	accounts    *people.Accounts
	grants      *Grants
	sessions    *session.Sessions
	revocations *revocation.Revocations
	trail       *audit.Recorder
	logger      *slog.Logger
}

// Lifetimes are those of what is issued.
type Lifetimes struct {
	AccessToken time.Duration // of ID tokens too
	Code        time.Duration // of an authorization code
	Session     time.Duration // of a sign-in
	Refresh     time.Duration // of a grant that is refreshed
	RefreshIdle time.Duration // of an unused refresh token

	// RefreshGrace is how long after its use a refresh token yields the same successor
	// again. For tokens that were replaced during one of the Outages, or within RefreshGrace
	// before it, it counts from its end.
	RefreshGrace time.Duration
	Outages      func() []store.Outage // see RefreshGrace
}

const refreshGrant = "refresh_token"

// now is the time by which refresh tokens are dated: gateways that share a store have one
// clock.
func (fs *families) now() time.Time { return store.Now(fs.durable) }

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
	var f *refreshFamily
	if err == nil {
		f, err = store.FromJSON[refreshFamily](stored)
	}
	return f, stored, err
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
	if err := checkRefreshScope(f.Grant.Scope, asked); err != nil {
		return nil, err
	}
	// First the provider, as it says who the person is now.
	if err := fs.sessions.SignIns.Refreshes(ctx, f.Grant.Session, f.Grant.Provider, f.Grant.Asked); err != nil {
		return nil, err
	}
	if err := fs.checkGrant(ctx, f, client); err != nil {
		return nil, err
	}
	if f.Grant.online() {
		if err := fs.sessions.RecordActivity(ctx, f.Grant.Session); err != nil {
			return nil, err
		}
	}
	g := *f.Grant
	g.Nonce = "" // of the sign-in only (OpenID Connect Core §12.2)
	var err error
	g.Scope, err = narrowScope(g.Scope, asked)
	return &g, err
}

// state returns what a token is to its family. If the current token was issued when an outage
// was about to begin, or had begun, the response may have been lost with it, so the grace
// period counts from its end. By the clock of a gateway that is slower than the one that issued
// it, it is not yet: that is no grace period where there is none.
func (fs *families) state(f *refreshFamily, token string) tokenState {
	age := fs.now().Sub(f.IssuedAt)
	for _, o := range fs.Outages() {
		if o.Near(f.IssuedAt, fs.RefreshGrace) {
			age = min(age, time.Since(o.Over))
		}
	}
	return f.state(token, fs.RefreshGrace > 0 && age < fs.RefreshGrace)
}

func (fs *families) revokeReplayed(ctx context.Context, f *refreshFamily) error {
	g := f.Grant
	err := fs.revoke(ctx, g)
	fs.trail.Record(ctx, audit.Event{Kind: audit.Revocation, User: g.User, ClientID: g.ClientID, Scope: g.ScopeText(), Grant: refreshGrant, Reason: "a refresh token was used twice", Err: err})
	if err != nil {
		return fmt.Errorf("revoking what a refresh token gave that was used twice: %w", err)
	}
	return errInvalidRefreshToken
}

// revoke revokes a grant with its refresh tokens and access tokens.
func (fs *families) revoke(ctx context.Context, g *Grant) error {
	err := fs.revocations.Revoke(ctx, g.Family, keyring.Retention, familyKey(g.Family))
	if err == nil {
		fs.revocations.LimitRevocations(ctx, g.User, g.ClientID, g.Family)
	}
	return err
}

// check refuses a grant that was revoked or has expired, or that its person, session or
// client no longer allows.
func (fs *families) check(ctx context.Context, f *refreshFamily, client *client.Client) error {
	if err := fs.checkGrant(ctx, f, client); err != nil || !f.Grant.online() {
		return err
	}
	_, err := fs.durable.Get(ctx, session.Key(f.Grant.Session))
	if errors.Is(err, store.ErrNotFound) {
		return errSignedOut
	}
	return err
}

var errSignedOut = oauth2.InvalidGrant("the person has signed out")

// checkGrant is check without the session, which is read when the token is rotated.
func (fs *families) checkGrant(ctx context.Context, f *refreshFamily, client *client.Client) error {
	void, err := fs.grants.revoked(ctx, f.Grant)
	switch {
	case err != nil:
		return err
	case void || !fs.now().Before(f.expires(fs.RefreshIdle)):
		return errInvalidRefreshToken
	}
	return fs.grants.checkAllowed(ctx, f.Grant, client)
}

// clientOf returns the client of a refresh token sent without a client_id, as some public
// clients do, which have no credentials to send either.
func (fs *families) clientOf(ctx context.Context, p oauth2.Parameters) (*client.Client, error) {
	f, _, err := fs.find(ctx, p.Get("refresh_token"))
	if err != nil {
		return nil, err
	}
	fs.clients.Note(ctx, f.Grant.ClientID)
	found, err := fs.clients.Find(ctx, f.Grant.ClientID)
	if err == nil && (found == nil || !found.Public()) {
		err = client.ErrNoClientID
	}
	return found, err
}

// maxFamilies is how many grants of one person to one client can be refreshed. Expired ones
// do not count, so that frequent short sessions do not displace a long-lived grant on a
// phone.
const maxFamilies = 200

// list is that of the families of a person and a client.
func (fs *families) list(ctx context.Context, user, clientID string) store.RecentList {
	return store.RecentList{
		Store: fs.durable, Key: store.Key("families", user+"\x00"+clientID), Max: maxFamilies, TTL: fs.Refresh,
		Ended: func(ids []string) ([]bool, error) {
			values, err := store.Values(ctx, fs.durable, familyKeys(ids)...)
			ended := make([]bool, len(values))
			for i, value := range values {
				ended[i] = value == nil
			}
			return ended, err
		},
	}
}

// keysOf returns the keys of families among which are all of a user, all to a client, or those of the user to the client if
// both are named. It looks at the person's lists alone, unless there is no user, or some of their apps are not listed.
func (fs *families) keysOf(ctx context.Context, user, clientID string) ([]string, error) {
	switch {
	case user == "":
		return fs.durable.List(ctx, familyKey(""))
	case clientID != "":
		return fs.listed(ctx, user, []string{clientID})
	}
	apps, err := fs.grants.apps.load(ctx, user)
	switch {
	case err != nil:
		return nil, err
	case lacksSome(apps):
		return fs.durable.List(ctx, familyKey(""))
	}
	return fs.listed(ctx, user, clientsOf(apps))
}

// listed returns the keys of a person's families that are listed for some clients.
func (fs *families) listed(ctx context.Context, user string, clients []string) (keys []string, err error) {
	var lists []string
	for _, id := range clients {
		lists = append(lists, fs.list(ctx, user, id).Key)
	}
	values, err := store.Values(ctx, fs.durable, lists...)
	for _, value := range values {
		for id := range slices.Chunk(value, familyIDSize) {
			keys = append(keys, familyKey(string(id)))
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys), err
}

// checkRefreshScope refuses a request for more than was granted (RFC 6749 §6), before anything is changed by it.
func checkRefreshScope(granted []string, asked string) error {
	parts, err := narrowScope(granted, asked)
	if err != nil || asked == "" {
		return err
	}
	for scope := range strings.FieldsSeq(asked) {
		if !slices.Contains(parts, scope) {
			return refusedScope(&smart.UnlistedError{Scope: scope})
		}
	}
	return nil
}

func refusedScope(cause error) error {
	return &oauth2.Error{Code: "invalid_scope", Description: "the scope is malformed, or more than was granted", Err: cause}
}

// narrowScope returns the part of a granted scope that is requested, or all of it if asked is empty. It is less than
// requested if the person may have less by now than was granted.
func narrowScope(granted []string, asked string) ([]string, error) {
	if asked == "" {
		return granted, nil
	}
	scopes, err := smart.ParseScopes(asked)
	if err == nil {
		scopes, err = smart.Grant(scopes, granted)
	}
	if err != nil {
		return nil, refusedScope(err)
	}
	return scopes, nil
}
