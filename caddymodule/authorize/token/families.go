package token

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
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

// A refresh token is 48 bytes in base64url: the id of its family, a secret, and a tag by
// which the family recognizes every token that it ever had. Only the SHA-256 of the current
// token is stored.
const refreshTokenSize = 3 * revocation.IDSize

// refreshFamily is a chain of refresh tokens as stored in a [store.Store]. Each token is
// used once and replaced by the next (RFC 9700 §4.14.2).
type refreshFamily struct {
	Grant   *Grant `json:"grant"`   // narrowed by no single request (RFC 6749 §6)
	Current []byte `json:"current"` // the SHA-256 of the current token

	// Key makes the tags. With it a reader of the store can forge tokens that end the
	// family, but none that yield anything.
	Key []byte `json:"key"`

	// Salt derives the current token from the one before, for clients that missed a
	// response. The store alone does not reveal the token.
	Salt []byte `json:"salt"`

	IssuedAt time.Time `json:"issued_at"` // of the current token
	Expiry   time.Time `json:"expiry"`    // of the whole family
}

type tokenState int

const (
	unknownToken tokenState = iota // never one of its tokens
	reusedToken                    // replaced already
	retriedToken                   // replaced within the grace period
	currentToken
)

// state returns what a token is to the family. Within the grace period the client may not
// have received the current token, and may use the one before.
func (f *refreshFamily) state(token string, inGrace bool) tokenState {
	raw := refreshTokenBytes(token)
	switch {
	case raw == nil:
		return unknownToken
	case f.isCurrent(token):
		return currentToken
	case subtle.ConstantTimeCompare(f.tag(raw[:2*revocation.IDSize]), raw[2*revocation.IDSize:]) != 1:
		return unknownToken
	case inGrace && f.isCurrent(f.successor(token)):
		return retriedToken
	}
	return reusedToken
}

func (f *refreshFamily) isCurrent(token string) bool {
	sum := sha256.Sum256([]byte(token))
	return subtle.ConstantTimeCompare(sum[:], f.Current) == 1
}

func (f *refreshFamily) first(now time.Time) string {
	token := f.token(oauth2.RandomBytes(revocation.IDSize))
	f.setCurrent(token, now)
	return token
}

// rotate makes the token that replaces the current one.
func (f *refreshFamily) rotate(token string, now time.Time) string {
	f.Salt = oauth2.RandomBytes(sha256.Size)
	next := f.successor(token)
	f.setCurrent(next, now)
	return next
}

func (f *refreshFamily) setCurrent(token string, now time.Time) {
	sum := sha256.Sum256([]byte(token))
	f.Current, f.IssuedAt = sum[:], now
}

func (f *refreshFamily) successor(token string) string {
	return f.token(mac(f.Salt, []byte(token)))
}

func (f *refreshFamily) token(secret []byte) string {
	id, _ := base64.RawURLEncoding.DecodeString(f.Grant.Family) // made by RandomID
	body := append(id, secret...)
	return base64.RawURLEncoding.EncodeToString(append(body, f.tag(body)...))
}

func (f *refreshFamily) tag(body []byte) []byte { return mac(f.Key, body) }

// mac is HMAC-SHA256, truncated to 128 bits.
func mac(key, message []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write(message)
	return h.Sum(nil)[:revocation.IDSize]
}

// familyID returns the family's id, or "" if the text does not look like a refresh token.
func familyID(token string) string {
	raw := refreshTokenBytes(token)
	if raw == nil {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(raw[:revocation.IDSize])
}

// refreshTokenBytes decodes a refresh token, or returns nil if the text does not look like
// one. It also checks the text's length: encoding/base64 skips line breaks, and a token must
// have one form only.
func refreshTokenBytes(token string) []byte {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil || len(raw) != refreshTokenSize || len(token) != base64.RawURLEncoding.EncodedLen(refreshTokenSize) {
		return nil
	}
	return raw
}

// familyIDSize is the length of a family's id in base64url.
const familyIDSize = (revocation.IDSize*8 + 5) / 6

func familyKey(id string) string { return "refresh:" + id }

func familyKeys(ids []string) (keys []string) {
	for _, id := range ids {
		keys = append(keys, familyKey(id))
	}
	return keys
}

// expires returns when the family ends unless it is used again.
func (f *refreshFamily) expires(idle time.Duration) time.Time {
	if idleEnd := f.IssuedAt.Add(idle); idleEnd.Before(f.Expiry) {
		return idleEnd
	}
	return f.Expiry
}

// familyStart is a family that is about to be stored, with its first token.
type familyStart struct {
	families *families
	token    string
	id       string
	value    []byte
	ttl      time.Duration
	list     store.RecentList // of the person's grants to the client
}

// calls returns the calls to the durable store that store the family and list it; none if
// there is no family. They fail with [store.ErrTooLong] if there are too many; see makeRoom.
func (s *familyStart) calls() []*store.Call {
	if s == nil {
		return nil
	}
	return []*store.Call{s.list.Adding(s.id), {Op: store.Put, Key: familyKey(s.id), Value: s.value, TTL: s.ttl}}
}

// makeRoom drops the person's oldest grants to the client.
func (s *familyStart) makeRoom(ctx context.Context) error {
	dropped, err := s.list.Fold(ctx, len(s.id))
	if err != nil {
		return err
	}
	return store.Do(ctx, store.In(s.families.durable, store.Deleting(familyKeys(dropped)...)...))
}

// drop removes a family whose code could not be redeemed. Where code and family are in one
// store, nothing was stored, unless the answer was lost: then the family is left to expire at
// once, but only if it is this one. Another request with the code may have succeeded.
func (s *familyStart) drop(ctx context.Context, codes store.Store) {
	if s == nil {
		return
	}
	ctx, durable := context.WithoutCancel(ctx), s.families.durable
	var err error
	if codes == durable {
		err = durable.Swap(ctx, familyKey(s.id), s.value, s.value, time.Second)
	} else {
		err = durable.Delete(ctx, familyKey(s.id))
	}
	if err != nil && !errors.Is(err, store.ErrChanged) {
		// Nobody has its token, and it expires.
		s.families.logger.WarnContext(ctx, "a refresh token that was not given out stays stored", "error", err)
	}
}

// start makes the first refresh token of a grant, to be stored when its code is redeemed; nil
// if it has none.
func (fs *families) start(ctx context.Context, g *Grant) (*familyStart, error) {
	if !g.wantsRefresh() {
		return nil, nil
	}
	now, lifetime := fs.now(), fs.Refresh
	if g.online() {
		lifetime = min(lifetime, fs.Session)
	}
	lifetime = g.bounded(lifetime)
	f := &refreshFamily{Grant: g, Key: oauth2.RandomBytes(32), Expiry: now.Add(lifetime)}
	start := &familyStart{families: fs, token: f.first(now), id: g.Family, list: fs.list(ctx, g.User, g.ClientID)}
	err := fs.accounts.Keep(ctx, g.User, g.Provider, g.Subject, lifetime)
	if err == nil && !g.online() {
		g.Asked, err = fs.sessions.SignIns.Keep(ctx, g.Session, g.Provider, lifetime)
	}
	if err == nil {
		start.value, err = store.ToJSON(f)
	}
	start.ttl = f.expires(fs.RefreshIdle).Sub(now)
	return start, err
}

// rotation replaces a refresh token by the next, in one step of each store that also reads
// whether the grant still stands.
type rotation struct {
	families *families
	client   *client.Client
	family   *refreshFamily
	stored   []byte // the family as it was found
	value    []byte // as it is to be; nil if the token was replaced already

	check            *revocation.Check
	session, consent []*store.Call // what is read, if it matters
}

// rotate returns the next refresh token: a new one, or within the grace period the same one
// again. If another request was faster, the error is [store.ErrChanged].
//
// For a new one it does not read whether the family was revoked. Who revokes deletes the family
// last: then the swap fails, if the check was too early. And PostgreSQL reads after the swap: a
// second use may have revoked the family by then, but this request was the first.
func (fs *families) rotate(ctx context.Context, client *client.Client, f *refreshFamily, stored []byte, token string) (string, error) {
	r := &rotation{families: fs, client: client, family: f, stored: stored}
	if !f.isCurrent(token) {
		return f.successor(token), r.do(ctx, f.Grant.Family)
	}
	next := f.rotate(token, fs.now())
	var err error
	if r.value, err = store.ToJSON(f); err != nil {
		return "", err
	}
	return next, r.do(ctx, "")
}

// do makes the step, and refuses if a family was revoked, unless that is "".
func (r *rotation) do(ctx context.Context, revocable string) (err error) {
	g := r.family.Grant
	if r.check, err = r.families.revocations.Check(ctx, revocable, g.binding()); err != nil {
		return err
	}
	r.consent = r.families.grants.readingConsent(g, r.client)
	if g.online() {
		r.session = []*store.Call{session.Reading(g.Session)}
	}
	var calls []*store.Call
	if r.value != nil {
		calls = append(calls, r.replacing(r.stored, r.value))
	}
	calls = append(append(calls, r.consent...), r.session...)
	if err := store.Do(ctx, r.check.Step(), store.In(r.families.durable, calls...)); err != nil {
		return err
	}
	return r.confirm(ctx)
}

func (r *rotation) replacing(old, value []byte) *store.Call {
	fs := r.families
	return &store.Call{
		Op: store.Swap, Key: familyKey(r.family.Grant.Family), Old: old, Value: value,
		TTL: store.Until(fs.durable, r.family.expires(fs.RefreshIdle)),
	}
}

// confirm refuses a grant that ended before the step. One that has ended for good is removed;
// one whose consent may come back gets its token back.
func (r *rotation) confirm(ctx context.Context) error {
	durable, g := r.families.durable, r.family.Grant
	undoing := context.WithoutCancel(ctx)
	void, err := r.check.Void(g.GrantedAt)
	switch {
	case err != nil:
		return err
	case void:
		return errors.Join(errInvalidRefreshToken, durable.Delete(undoing, familyKey(g.Family)))
	case r.session != nil && r.session[0].Value == nil:
		return errors.Join(errSignedOut, durable.Delete(undoing, familyKey(g.Family)))
	}
	err = r.families.grants.checkReadConsent(g, r.client, r.consent)
	if err != nil && r.value != nil {
		undone := durable.Do(undoing, r.replacing(r.value, r.stored))
		if !store.Lost(undone) {
			err = errors.Join(err, undone)
		}
	}
	return err
}
