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

var errInvalidRefreshToken = oauth2.InvalidGrant("refresh token is unknown, expired, revoked or already used")

// tokenFamilies manages grants with refresh tokens. Each grant has one chain of refresh tokens.
type tokenFamilies struct {
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

	// RefreshGrace is the time after rotation during which a refresh token returns the same successor again. For tokens rotated
	// during one of the Outages, or less than RefreshGrace before it, this time starts at the end of the outage.
	RefreshGrace time.Duration
	Outages      func() []store.Outage // see RefreshGrace
}

const grantTypeRefreshToken = "refresh_token"

// now returns the current time for dating refresh tokens. Gateways that share a store use the store's clock.
func (fs *tokenFamilies) now() time.Time { return store.Now(fs.durable) }

// find returns the family of a token and its stored form.
func (fs *tokenFamilies) find(ctx context.Context, token string) (*refreshFamily, []byte, error) {
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

// findRedeemable returns the grant of a refresh token, narrowed to the requested scope. It checks the
// client first, so that requests of other clients have no effect.
func (fs *tokenFamilies) findRedeemable(ctx context.Context, f *refreshFamily, client *client.Client, token, requested string) (*Grant, error) {
	if f.Grant.ClientID != client.ID {
		return nil, oauth2.InvalidGrant("refresh token was issued to another client")
	}
	switch fs.classify(f, token) {
	case unknownToken:
		return nil, errInvalidRefreshToken
	case reusedToken:
		return nil, fs.revokeReplayedToken(ctx, f)
	}
	if err := checkRefreshScope(f.Grant.Scope, requested); err != nil {
		return nil, err
	}
	// Revalidation comes first, because the provider's response updates the user.
	if err := fs.sessions.SignIns.CheckRefresh(ctx, f.Grant.Session, f.Grant.Provider, f.Grant.RequiresRevalidation); err != nil {
		return nil, err
	}
	if err := fs.checkGrant(ctx, f, client); err != nil {
		return nil, err
	}
	if f.Grant.endsWithSession() {
		if err := fs.sessions.RecordActivity(ctx, f.Grant.Session); err != nil {
			return nil, err
		}
	}
	g := *f.Grant
	g.Nonce = "" // only the initial ID token contains it (OpenID Connect Core §12.2)
	var err error
	g.Scope, err = narrowScope(g.Scope, requested)
	return &g, err
}

// classify classifies a token of a family. If the current token was issued during or shortly before an outage, its response may
// have been lost, so the grace period starts at the end of the outage. With skewed clocks, the token's age may be negative,
// which must not enable a disabled grace period.
func (fs *tokenFamilies) classify(f *refreshFamily, token string) tokenState {
	age := fs.now().Sub(f.IssuedAt)
	for _, o := range fs.Outages() {
		if o.MayAffect(f.IssuedAt, fs.RefreshGrace) {
			age = min(age, time.Since(o.EndedAt))
		}
	}
	return f.classify(token, fs.RefreshGrace > 0 && age < fs.RefreshGrace)
}

func (fs *tokenFamilies) revokeReplayedToken(ctx context.Context, f *refreshFamily) error {
	g := f.Grant
	err := fs.revoke(ctx, g)
	fs.trail.Record(ctx, audit.Event{Kind: audit.KindRevocation, User: g.User, ClientID: g.ClientID, Scope: g.ScopeString(), GrantType: grantTypeRefreshToken, Reason: "refresh token was reused", Err: err})
	if err != nil {
		return fmt.Errorf("revoking tokens after reuse of a refresh token: %w", err)
	}
	return errInvalidRefreshToken
}

// revoke revokes a grant with its refresh and access tokens.
func (fs *tokenFamilies) revoke(ctx context.Context, g *Grant) error {
	err := fs.revocations.Revoke(ctx, g.Family, keyring.Retention, familyKey(g.Family))
	if err == nil {
		fs.revocations.LimitRevocations(ctx, g.User, g.ClientID, g.Family)
	}
	return err
}

// checkFamily returns an error for a grant that was revoked, has expired, or is no longer permitted by its user, session or
// client.
func (fs *tokenFamilies) checkFamily(ctx context.Context, f *refreshFamily, client *client.Client) error {
	if err := fs.checkGrant(ctx, f, client); err != nil || !f.Grant.endsWithSession() {
		return err
	}
	_, err := fs.durable.Get(ctx, session.Key(f.Grant.Session))
	if errors.Is(err, store.ErrNotFound) {
		return errSignedOut
	}
	return err
}

var errSignedOut = oauth2.InvalidGrant("the user has signed out")

// checkGrant is like checkFamily, but without the session, which rotation reads in its own step.
func (fs *tokenFamilies) checkGrant(ctx context.Context, f *refreshFamily, client *client.Client) error {
	isRevoked, err := fs.grants.isRevoked(ctx, f.Grant)
	switch {
	case err != nil:
		return err
	case isRevoked || !fs.now().Before(f.expiresAt(fs.RefreshIdle)):
		return errInvalidRefreshToken
	}
	return fs.grants.checkClientPermits(ctx, f.Grant, client)
}

// inferClient returns the client of a refresh token sent without client_id, as some public clients do. Such clients have no
// credentials.
func (fs *tokenFamilies) inferClient(ctx context.Context, p oauth2.Parameters) (*client.Client, error) {
	f, _, err := fs.find(ctx, p.Get("refresh_token"))
	if err != nil {
		return nil, err
	}
	fs.clients.RecordClient(ctx, f.Grant.ClientID)
	found, err := fs.clients.Find(ctx, f.Grant.ClientID)
	if err == nil && (found == nil || !found.IsPublic()) {
		err = client.ErrNoClientID
	}
	return found, err
}

// maxFamilies is the maximum number of refreshable grants per user and client. It does not include expired grants, so that
// frequent short sessions do not displace a long-lived grant on a phone.
const maxFamilies = 200

// userFamilies returns the list of families of a user and client.
func (fs *tokenFamilies) userFamilies(ctx context.Context, user, clientID string) store.RecentList {
	return store.RecentList{
		Store: fs.durable, Key: store.Key("families", user+"\x00"+clientID), Max: maxFamilies, TTL: fs.Refresh,
		FindEnded: func(ids []string) ([]bool, error) {
			values, err := store.ReadValues(ctx, fs.durable, familyKeys(ids)...)
			ended := make([]bool, len(values))
			for i, value := range values {
				ended[i] = value == nil
			}
			return ended, err
		},
	}
}

// candidateKeys returns keys that include all families of a user, of a client, or of both if both are given.
// It reads only the user's lists unless user is empty or the user's list of apps is truncated.
func (fs *tokenFamilies) candidateKeys(ctx context.Context, user, clientID string) ([]string, error) {
	switch {
	case user == "":
		return fs.durable.List(ctx, familyKey(""))
	case clientID != "":
		return fs.listedKeys(ctx, user, []string{clientID})
	}
	apps, err := fs.grants.apps.load(ctx, user)
	switch {
	case err != nil:
		return nil, err
	case isTruncated(apps):
		return fs.durable.List(ctx, familyKey(""))
	}
	return fs.listedKeys(ctx, user, clientIDs(apps))
}

// listedKeys returns the keys of a user's listed families for the given clients.
func (fs *tokenFamilies) listedKeys(ctx context.Context, user string, clients []string) (keys []string, err error) {
	var lists []string
	for _, id := range clients {
		lists = append(lists, fs.userFamilies(ctx, user, id).Key)
	}
	values, err := store.ReadValues(ctx, fs.durable, lists...)
	for _, value := range values {
		for id := range slices.Chunk(value, familyIDSize) {
			keys = append(keys, familyKey(string(id)))
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys), err
}

// checkRefreshScope returns an error for a scope that exceeds the grant (RFC 6749 §6). It is called before any write.
func checkRefreshScope(granted []string, requested string) error {
	parts, err := narrowScope(granted, requested)
	if err != nil || requested == "" {
		return err
	}
	for scope := range strings.FieldsSeq(requested) {
		if !slices.Contains(parts, scope) {
			return newScopeError(&smart.UnlistedError{Scope: scope})
		}
	}
	return nil
}

func newScopeError(cause error) error {
	return &oauth2.Error{Code: "invalid_scope", Description: "the requested scope is malformed or exceeds the granted scope", Err: cause}
}

// narrowScope returns the requested part of a granted scope, or all of it if requested is empty. The
// result is smaller than requested if the user's scope limits have been reduced since the grant.
func narrowScope(granted []string, requested string) ([]string, error) {
	if requested == "" {
		return granted, nil
	}
	scopes, err := smart.ParseScopes(requested)
	if err == nil {
		scopes, err = smart.Grant(scopes, granted)
	}
	if err != nil {
		return nil, newScopeError(err)
	}
	return scopes, nil
}

// refreshTokenSize is the size of a refresh token in bytes before base64url encoding. A token consists of the family's id, a
// secret, and a tag that authenticates all tokens of the family, including old ones. Only the SHA-256 of the current token is
// stored.
const refreshTokenSize = 3 * revocation.IDSize

// refreshFamily is a chain of refresh tokens, as stored in a [store.Store]. Each token is used once
// and replaced by its successor (RFC 9700 §4.14.2).
type refreshFamily struct {
	Grant       *Grant `json:"grant"`   // full grant, unaffected by narrower requests (RFC 6749 §6)
	CurrentHash []byte `json:"current"` // SHA-256 of the current token

	// TagKey authenticates the tags. An attacker who reads the store can forge tokens that revoke the family, but no tokens
	// that are accepted.
	TagKey []byte `json:"key"`

	// Salt derives the current token from its predecessor, for clients that missed a response. Reading the store is not
	// sufficient to compute the token.
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

// classify classifies a token of the family. Within the grace period the predecessor of the current
// token is accepted, because the client may have missed the response.
func (f *refreshFamily) classify(token string, inGrace bool) tokenState {
	raw := decodeRefreshToken(token)
	switch {
	case raw == nil:
		return unknownToken
	case f.isCurrent(token):
		return currentToken
	case subtle.ConstantTimeCompare(f.computeTag(raw[:2*revocation.IDSize]), raw[2*revocation.IDSize:]) != 1:
		return unknownToken
	case inGrace && f.isCurrent(f.successor(token)):
		return retriedToken
	}
	return reusedToken
}

func (f *refreshFamily) isCurrent(token string) bool {
	sum := sha256.Sum256([]byte(token))
	return subtle.ConstantTimeCompare(sum[:], f.CurrentHash) == 1
}

func (f *refreshFamily) issueFirst(now time.Time) string {
	token := f.buildToken(oauth2.RandomBytes(revocation.IDSize))
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
	f.CurrentHash, f.IssuedAt = sum[:], now
}

func (f *refreshFamily) successor(token string) string {
	return f.buildToken(truncatedHMAC(f.Salt, []byte(token)))
}

func (f *refreshFamily) buildToken(secret []byte) string {
	id, _ := base64.RawURLEncoding.DecodeString(f.Grant.Family) // created by RandomID, always valid
	body := append(id, secret...)
	return base64.RawURLEncoding.EncodeToString(append(body, f.computeTag(body)...))
}

func (f *refreshFamily) computeTag(body []byte) []byte { return truncatedHMAC(f.TagKey, body) }

// truncatedHMAC returns HMAC-SHA256 truncated to 128 bits.
func truncatedHMAC(key, message []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write(message)
	return h.Sum(nil)[:revocation.IDSize]
}

// familyID returns the family's id, or "" if the token is malformed.
func familyID(token string) string {
	raw := decodeRefreshToken(token)
	if raw == nil {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(raw[:revocation.IDSize])
}

// decodeRefreshToken decodes a refresh token, or returns nil if it is malformed. It checks the text's length
// too, because encoding/base64 skips line breaks and each token must have a single representation.
func decodeRefreshToken(token string) []byte {
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

// expiresAt returns when the family expires if it is not used again.
func (f *refreshFamily) expiresAt(idle time.Duration) time.Time {
	if idleEnd := f.IssuedAt.Add(idle); idleEnd.Before(f.Expiry) {
		return idleEnd
	}
	return f.Expiry
}

// pendingFamily is a new family with its first token, before it is stored.
type pendingFamily struct {
	families *tokenFamilies
	token    string
	id       string
	value    []byte
	ttl      time.Duration
	userList store.RecentList // the user's families for the client
}

// calls returns the durable store calls that store and list the family. A nil pendingFamily has no calls. They fail with
// [store.ErrTooLong] if the list is full; see dropOldest.
func (s *pendingFamily) calls() []*store.Call {
	if s == nil {
		return nil
	}
	return []*store.Call{s.userList.AddCall(s.id), {Op: store.Put, Key: familyKey(s.id), Value: s.value, TTL: s.ttl}}
}

// dropOldest removes the user's oldest grants to the client.
func (s *pendingFamily) dropOldest(ctx context.Context) error {
	dropped, err := s.userList.MakeSpace(ctx, len(s.id))
	if err != nil {
		return err
	}
	return store.Do(ctx, store.NewStep(s.families.durable, store.DeleteCalls(familyKeys(dropped)...)...))
}

// discard removes a family after its code could not be redeemed. If codes and families share a store, the failed step stored
// nothing unless its response was lost. In that case the family expires immediately, but only if it is this one, because
// another request with the code may have succeeded.
func (s *pendingFamily) discard(ctx context.Context, codes store.Store) {
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
		s.families.logger.WarnContext(ctx, "failed to delete unsent refresh token", "error", err)
	}
}

// newPendingFamily creates the first refresh token of a grant, to be stored with the redemption of its code. It returns nil for
// a grant without refresh tokens.
func (fs *tokenFamilies) newPendingFamily(ctx context.Context, g *Grant) (*pendingFamily, error) {
	if !g.allowsRefresh() {
		return nil, nil
	}
	now, lifetime := fs.now(), fs.Refresh
	if g.endsWithSession() {
		lifetime = min(lifetime, fs.Session)
	}
	lifetime = g.limitLifetime(lifetime)
	f := &refreshFamily{Grant: g, TagKey: oauth2.RandomBytes(32), Expiry: now.Add(lifetime)}
	pending := &pendingFamily{families: fs, token: f.issueFirst(now), id: g.Family, userList: fs.userFamilies(ctx, g.User, g.ClientID)}
	err := fs.accounts.ExtendLifetime(ctx, g.User, g.Provider, g.Subject, lifetime)
	if err == nil && !g.endsWithSession() {
		g.RequiresRevalidation, err = fs.sessions.SignIns.ExtendLifetime(ctx, g.Session, g.Provider, lifetime)
	}
	if err == nil {
		pending.value, err = store.ToJSON(f)
	}
	pending.ttl = f.expiresAt(fs.RefreshIdle).Sub(now)
	return pending, err
}

// rotation replaces a refresh token with its successor. It uses one step per store, which also rereads whether the grant is
// valid.
type rotation struct {
	families *tokenFamilies
	client   *client.Client
	family   *refreshFamily
	stored   []byte // stored form of the family before the rotation
	value    []byte // stored form after the rotation; nil if the token was already rotated

	check                      *revocation.Check
	sessionCalls, consentCalls []*store.Call // calls that reread session and consent, if required
}

// rotate returns the successor of a refresh token: a new token, or within the grace period the same token again. If a
// concurrent request has rotated the token, the error is [store.ErrChanged].
//
// For a new token it does not reread whether the family was revoked, because a revocation deletes the family last, so the
// swap fails. Rereading would also be wrong, because PostgreSQL reads after the swap. By then, a replay may have revoked the
// family, although this request was first.
func (fs *tokenFamilies) rotate(ctx context.Context, client *client.Client, f *refreshFamily, stored []byte, token string) (string, error) {
	r := &rotation{families: fs, client: client, family: f, stored: stored}
	if !f.isCurrent(token) {
		return f.successor(token), r.execute(ctx, f.Grant.Family)
	}
	next := f.rotate(token, fs.now())
	var err error
	if r.value, err = store.ToJSON(f); err != nil {
		return "", err
	}
	return next, r.execute(ctx, "")
}

// execute executes the step. It returns an error for a revoked family, unless checkedFamily is "".
func (r *rotation) execute(ctx context.Context, checkedFamily string) (err error) {
	g := r.family.Grant
	if r.check, err = r.families.revocations.NewCheck(ctx, checkedFamily, g.binding()); err != nil {
		return err
	}
	r.consentCalls = r.families.grants.consentCalls(g, r.client)
	if g.endsWithSession() {
		r.sessionCalls = []*store.Call{session.ExistsCall(g.Session)}
	}
	var calls []*store.Call
	if r.value != nil {
		calls = append(calls, r.swapCall(r.stored, r.value))
	}
	calls = append(append(calls, r.consentCalls...), r.sessionCalls...)
	if err := store.Do(ctx, r.check.Step(), store.NewStep(r.families.durable, calls...)); err != nil {
		return err
	}
	return r.confirm(ctx)
}

func (r *rotation) swapCall(old, value []byte) *store.Call {
	fs := r.families
	return &store.Call{
		Op: store.Swap, Key: familyKey(r.family.Grant.Family), Old: old, Value: value,
		TTL: store.Until(fs.durable, r.family.expiresAt(fs.RefreshIdle)),
	}
}

// confirm returns an error for a grant that was revoked before the step. It deletes the family if the revocation is final, and
// restores the previous token if only the consent is missing.
func (r *rotation) confirm(ctx context.Context) error {
	durable, g := r.families.durable, r.family.Grant
	cleanupCtx := context.WithoutCancel(ctx)
	isRevoked, err := r.check.IsRevoked(g.GrantedAt)
	switch {
	case err != nil:
		return err
	case isRevoked:
		return errors.Join(errInvalidRefreshToken, durable.Delete(cleanupCtx, familyKey(g.Family)))
	case r.sessionCalls != nil && r.sessionCalls[0].Value == nil:
		return errors.Join(errSignedOut, durable.Delete(cleanupCtx, familyKey(g.Family)))
	}
	err = r.families.grants.checkConsentCalls(g, r.client, r.consentCalls)
	if err != nil && r.value != nil {
		restoreErr := durable.Do(cleanupCtx, r.swapCall(r.value, r.stored))
		if !store.IsConflict(restoreErr) {
			err = errors.Join(err, restoreErr)
		}
	}
	return err
}
