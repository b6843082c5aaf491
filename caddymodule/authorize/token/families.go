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

// families manages grants with refresh tokens. Each grant has one chain of refresh tokens.
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

// Lifetimes are the lifetimes of tokens, codes and sessions.
type Lifetimes struct {
	AccessToken time.Duration // lifetime of access and ID tokens
	Code        time.Duration // lifetime of an authorization code
	Session     time.Duration // lifetime of a session
	Refresh     time.Duration // lifetime of a grant with refresh tokens
	RefreshIdle time.Duration // lifetime of an unused refresh token

	// RefreshGrace is the time after rotation during which a refresh token returns the same
	// successor again. For tokens rotated during one of the Outages, or up to RefreshGrace before
	// it, the time starts at the end of the outage.
	RefreshGrace time.Duration
	Outages      func() []store.Outage // see RefreshGrace
}

const refreshGrant = "refresh_token"

// now returns the time for dating refresh tokens; gateways that share a store use the store's clock.
func (fs *families) now() time.Time { return store.Now(fs.durable) }

// find returns the family of a token and its stored form.
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

// redeemable returns the grant of a refresh token, narrowed to the requested scope. It checks the
// client first, so that requests of other clients have no effect.
func (fs *families) redeemable(ctx context.Context, f *refreshFamily, client *client.Client, token, asked string) (*Grant, error) {
	if f.Grant.ClientID != client.ID {
		return nil, oauth2.InvalidGrant("the refresh token was issued to another client")
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
	// Revalidation first, because the provider's response updates the user.
	if err := fs.sessions.SignIns.CheckRefresh(ctx, f.Grant.Session, f.Grant.Provider, f.Grant.RequiresRevalidation); err != nil {
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
	g.Nonce = "" // for the initial sign-in only (OpenID Connect Core §12.2)
	var err error
	g.Scope, err = narrowScope(g.Scope, asked)
	return &g, err
}

// state classifies a token of a family. If the current token was issued during or shortly before an
// outage, its response may have been lost, so the grace period starts at the end of the outage.
// With skewed clocks the age may be negative, which must not enable a disabled grace period.
func (fs *families) state(f *refreshFamily, token string) tokenState {
	age := fs.now().Sub(f.IssuedAt)
	for _, o := range fs.Outages() {
		if o.MayAffect(f.IssuedAt, fs.RefreshGrace) {
			age = min(age, time.Since(o.EndedAt))
		}
	}
	return f.state(token, fs.RefreshGrace > 0 && age < fs.RefreshGrace)
}

func (fs *families) revokeReplayed(ctx context.Context, f *refreshFamily) error {
	g := f.Grant
	err := fs.revoke(ctx, g)
	fs.trail.Record(ctx, audit.Event{Kind: audit.Revocation, User: g.User, ClientID: g.ClientID, Scope: g.ScopeText(), Grant: refreshGrant, Reason: "a refresh token was used twice", Err: err})
	if err != nil {
		return fmt.Errorf("revoking the tokens of a replayed refresh token: %w", err)
	}
	return errInvalidRefreshToken
}

// revoke revokes a grant with its refresh and access tokens.
func (fs *families) revoke(ctx context.Context, g *Grant) error {
	err := fs.revocations.Revoke(ctx, g.Family, keyring.Retention, familyKey(g.Family))
	if err == nil {
		fs.revocations.LimitRevocations(ctx, g.User, g.ClientID, g.Family)
	}
	return err
}

// check rejects a grant that was revoked, has expired, or is no longer permitted by its user, session or client.
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

// checkGrant is like check, but without the session, which rotation reads in its own step.
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

// clientOf returns the client of a refresh token sent without client_id, as some public clients do.
// They have no credentials to send.
func (fs *families) clientOf(ctx context.Context, p oauth2.Parameters) (*client.Client, error) {
	f, _, err := fs.find(ctx, p.Get("refresh_token"))
	if err != nil {
		return nil, err
	}
	fs.clients.RecordClient(ctx, f.Grant.ClientID)
	found, err := fs.clients.Find(ctx, f.Grant.ClientID)
	if err == nil && (found == nil || !found.Public()) {
		err = client.ErrNoClientID
	}
	return found, err
}

// maxFamilies limits the refreshable grants per user and client. Expired grants do not count, so
// that frequent short sessions do not displace a long-lived grant on a phone.
const maxFamilies = 200

// list returns the list of families of a user and client.
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

// keysOf returns keys that include all families of a user, of a client, or of both if both are given.
// It reads only the user's lists unless user is empty or the user's list of apps is truncated.
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
	case isTruncated(apps):
		return fs.durable.List(ctx, familyKey(""))
	}
	return fs.listed(ctx, user, clientsOf(apps))
}

// listed returns the keys of a user's listed families for the given clients.
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

// checkRefreshScope rejects a scope that exceeds the grant (RFC 6749 §6), before any write.
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

// narrowScope returns the requested part of a granted scope, or all of it if asked is empty. The
// result is smaller than requested if the user's scope limits have been reduced since the grant.
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

// A refresh token is 48 bytes in base64url: the family's id, a secret, and a tag that authenticates
// all tokens of the family, including old ones. Only the SHA-256 of the current token is stored.
const refreshTokenSize = 3 * revocation.IDSize

// refreshFamily is a chain of refresh tokens, as stored in a [store.Store]. Each token is used once
// and replaced by its successor (RFC 9700 §4.14.2).
type refreshFamily struct {
	Grant   *Grant `json:"grant"`   // full grant, unaffected by narrower requests (RFC 6749 §6)
	Current []byte `json:"current"` // SHA-256 of the current token

	// Key authenticates the tags. An attacker who reads the store can forge tokens that revoke the
	// family, but none that are accepted.
	Key []byte `json:"key"`

	// Salt derives the current token from its predecessor, for clients that missed a response. The
	// store alone does not reveal the token.
	Salt []byte `json:"salt"`

	IssuedAt time.Time `json:"issued_at"` // issue time of the current token
	Expiry   time.Time `json:"expiry"`    // expiry of the family
}

type tokenState int

const (
	unknownToken tokenState = iota // not a token of the family
	reusedToken                    // already rotated
	retriedToken                   // rotated within the grace period
	currentToken
)

// state classifies a token of the family. Within the grace period the predecessor of the current
// token is accepted, because the client may have missed the response.
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

// rotate replaces the current token with a new one.
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
	id, _ := base64.RawURLEncoding.DecodeString(f.Grant.Family) // created by RandomID, always valid
	body := append(id, secret...)
	return base64.RawURLEncoding.EncodeToString(append(body, f.tag(body)...))
}

func (f *refreshFamily) tag(body []byte) []byte { return mac(f.Key, body) }

// mac returns HMAC-SHA256 truncated to 128 bits.
func mac(key, message []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write(message)
	return h.Sum(nil)[:revocation.IDSize]
}

// familyID returns the family's id, or "" if the token is malformed.
func familyID(token string) string {
	raw := refreshTokenBytes(token)
	if raw == nil {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(raw[:revocation.IDSize])
}

// refreshTokenBytes decodes a refresh token, or returns nil if it is malformed. It checks the text's length
// too, because encoding/base64 skips line breaks and each token must have a single representation.
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

// expires returns the expiry of the family without further use.
func (f *refreshFamily) expires(idle time.Duration) time.Time {
	if idleEnd := f.IssuedAt.Add(idle); idleEnd.Before(f.Expiry) {
		return idleEnd
	}
	return f.Expiry
}

// familyStart is a new family with its first token, before it is stored.
type familyStart struct {
	families *families
	token    string
	id       string
	value    []byte
	ttl      time.Duration
	list     store.RecentList // the user's families for the client
}

// calls returns the durable store calls that store and list the family; none for a nil familyStart.
// They fail with [store.ErrTooLong] if the list is full; see makeRoom.
func (s *familyStart) calls() []*store.Call {
	if s == nil {
		return nil
	}
	return []*store.Call{s.list.AddCall(s.id), {Op: store.Put, Key: familyKey(s.id), Value: s.value, TTL: s.ttl}}
}

// makeRoom removes the user's oldest grants to the client.
func (s *familyStart) makeRoom(ctx context.Context) error {
	dropped, err := s.list.Fold(ctx, len(s.id))
	if err != nil {
		return err
	}
	return store.Do(ctx, store.StepIn(s.families.durable, store.Deleting(familyKeys(dropped)...)...))
}

// drop removes a family after its code could not be redeemed. If codes and families share a store, the
// failed step stored nothing unless its response was lost. In that case the family expires immediately,
// but only if it is this family: another request with the code may have succeeded.
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
		// The token was never sent, and the family expires.
		s.families.logger.WarnContext(ctx, "unsent refresh token not deleted", "error", err)
	}
}

// start creates the first refresh token of a grant, to be stored with the redemption of its code;
// nil for a grant without refresh tokens.
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
	err := fs.accounts.ExtendLifetime(ctx, g.User, g.Provider, g.Subject, lifetime)
	if err == nil && !g.online() {
		g.RequiresRevalidation, err = fs.sessions.SignIns.ExtendLifetime(ctx, g.Session, g.Provider, lifetime)
	}
	if err == nil {
		start.value, err = store.ToJSON(f)
	}
	start.ttl = f.expires(fs.RefreshIdle).Sub(now)
	return start, err
}

// rotation replaces a refresh token with its successor, in one step per store that also rereads
// whether the grant is valid.
type rotation struct {
	families *families
	client   *client.Client
	family   *refreshFamily
	stored   []byte // stored form of the family before the rotation
	value    []byte // stored form after the rotation; nil if the token was already rotated

	check            *revocation.Check
	session, consent []*store.Call // calls that reread session and consent, if required
}

// rotate returns the successor of a refresh token: a new token, or within the grace period the same
// token again. If a concurrent request has rotated the token, the error is [store.ErrChanged].
//
// For a new token it does not reread whether the family was revoked: a revocation deletes the
// family last, so the swap fails. Rereading would also be wrong, because PostgreSQL reads after the
// swap: by then a replay may have revoked the family, although this request was first.
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

// do executes the step. It rejects a revoked family, unless revocable is "".
func (r *rotation) do(ctx context.Context, revocable string) (err error) {
	g := r.family.Grant
	if r.check, err = r.families.revocations.Check(ctx, revocable, g.binding()); err != nil {
		return err
	}
	r.consent = r.families.grants.readingConsent(g, r.client)
	if g.online() {
		r.session = []*store.Call{session.ExistsCall(g.Session)}
	}
	var calls []*store.Call
	if r.value != nil {
		calls = append(calls, r.replacing(r.stored, r.value))
	}
	calls = append(append(calls, r.consent...), r.session...)
	if err := store.Do(ctx, r.check.Step(), store.StepIn(r.families.durable, calls...)); err != nil {
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

// confirm rejects a grant that was revoked before the step. It deletes the family if that is final,
// and restores the previous token if only the consent is missing.
func (r *rotation) confirm(ctx context.Context) error {
	durable, g := r.families.durable, r.family.Grant
	undoing := context.WithoutCancel(ctx)
	void, err := r.check.IsRevoked(g.GrantedAt)
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
		if !store.IsConflict(undone) {
			err = errors.Join(err, undone)
		}
	}
	return err
}
