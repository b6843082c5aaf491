package session

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/browser"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/revalidation"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/revocation"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/relyingparty"
)

// SignedInPerson is a signed-in person with data of the session.
type SignedInPerson struct {
	User       *people.User  // user at the gateway
	SignedInAt time.Time     // time of the latest sign-in
	SignInAge  time.Duration // time since the latest sign-in
	Provider   string        // key of the identity provider; "" for a password sign-in
	SID        string        // session id for clients (OpenID Connect Back-Channel Logout §2.1)
	Subject    string        // sub at the identity provider
	AMR        []string      // authentication methods (RFC 8176)

	ProviderName string // display name of the identity provider; "" for a password sign-in

	// ShouldRenew reports whether the browser should first be redirected to the identity provider, because the sign-in can no
	// longer be checked in another way (package signin). It is false for form submissions, which would be lost, and in frames,
	// in which browsers may not send the provider's cookies.
	ShouldRenew bool
}

// ProviderKey returns the sign-in method in the form used in [client.Settings].IdentityProviders.
func (s *SignedInPerson) ProviderKey() string { return cmp.Or(s.Provider, people.Local) }

// ACR returns the authentication context class of the sign-in.
func (s *SignedInPerson) ACR() string { return oauth2.DeriveACR(s.AMR, s.Provider) }

// Session is a stored session. It is written at each sign-in and, if [Sessions.IdleTimeout] is set, while the user is active.
type Session struct {
	SecretDigest     [sha256.Size]byte `json:"secret"`               // SHA-256 of the root and the secret in the cookie
	User             string            `json:"user"`                 // sub of the user
	CredentialDigest [sha256.Size]byte `json:"credential"`           // digest of the user's credential at the time of the sign-in
	StartedAt        time.Time         `json:"began"`                // when the session started
	SignedInAt       time.Time         `json:"at"`                   // time of the latest sign-in, at the gateway or at the identity provider
	ExpiresAt        time.Time         `json:"until,omitzero"`       // when the session expires regardless of activity
	LastActiveAt     time.Time         `json:"seen,omitzero"`        // time of the latest activity, accurate to about a tenth of [Sessions.IdleTimeout]
	Provider         string            `json:"provider,omitempty"`   // key of the identity provider; "" for a password sign-in
	AMR              []string          `json:"amr,omitempty"`        // authentication methods (RFC 8176)
	Address          string            `json:"address,omitempty"`    // IP address of the latest sign-in
	UserAgent        string            `json:"user_agent,omitempty"` // User-Agent of the latest sign-in

	// UpstreamSubject is the sub of the provider's ID token. The provider's logout tokens refer to it (end.go).
	UpstreamSubject string `json:"upstream_sub,omitempty"`
	UpstreamSession string `json:"upstream_sid,omitempty"` // sid of the provider's ID token; "" if none

	// UpstreamRequestedAt is when the provider's ID token was requested. A later logout at the provider ends this session,
	// even if the session is not yet stored when the logout arrives.
	UpstreamRequestedAt time.Time `json:"upstream_at,omitzero"`

	// UpstreamIDToken is the provider's ID token, stored only if the provider's option keep_upstream_token is set.
	UpstreamIDToken string `json:"upstream_id_token,omitempty"`

	// ReplacedProvider is the key of the identity provider of the session that a password sign-in replaced, or "". The browser is
	// still signed in there. UpstreamIDToken is then from that provider.
	ReplacedProvider string `json:"replaced_provider,omitempty"`

	relyingparty.ProviderTokens // stored separately, sealed (package revalidation)

	SID string `json:"-"` // stored as part of the store key

	root    string // part of the cookie, which identifies the session
	readErr error  // error from parsing the record; if set, only SID, root and possibly User are set
}

// UpstreamPerson returns the person's identity at the identity provider, for audit events.
func (s *Session) UpstreamPerson() audit.Person {
	return audit.Person{Provider: s.Provider, Subject: s.UpstreamSubject}
}

// LogoutProvider returns the key of the identity provider at which the browser must be signed out with the session, or "".
func (s *Session) LogoutProvider() string { return cmp.Or(s.Provider, s.ReplacedProvider) }

// Key returns the store key of a session. Unlike the secret in the cookie, the sid is public.
func Key(sid string) string { return "session:" + sid }

// parseSession decodes the record of a session; nil if value is nil.
func parseSession(sid string, value []byte) (*Session, error) {
	stored, err := store.FromJSON[Session](value)
	switch {
	case errors.Is(err, store.ErrNewerVersion):
		return nil, fmt.Errorf("reading session %s: %w", sid, err)
	case err != nil:
		return nil, &unreadableError{sid, err}
	case stored != nil:
		stored.SID = sid
	}
	return stored, nil
}

// ExistsCall returns the call that reads whether a session exists. If it reads no value, the session has ended; see [ErrEnded].
func ExistsCall(sid string) *store.Call { return &store.Call{Op: store.Get, Key: Key(sid)} }

// ErrEnded means that the session ended during the request.
var ErrEnded = &oauth2.Error{Code: "login_required", Description: "the session ended during the request"}

// ErrUnreadable means that the record of a session is malformed. Browsers cannot use such a session, but grants issued in it
// remain valid until the session is ended.
var ErrUnreadable = errors.New("session record is unreadable")

// IsUnreadable reports whether the record of the session is malformed; see [ErrUnreadable].
func (s *Session) IsUnreadable() bool { return s.readErr != nil }

// newUnreadableSession returns a placeholder for a session with a malformed record. user is "" if unknown.
func newUnreadableSession(sid, user string, err error) *Session {
	return &Session{SID: sid, User: user, readErr: err}
}

// unreadableError is [ErrUnreadable] with the sid of the session.
type unreadableError struct {
	sid   string
	cause error
}

// Error returns the error text with the sid, so that an operator can end the session.
func (e *unreadableError) Error() string {
	return "session " + e.sid + ": " + ErrUnreadable.Error() + ": " + e.cause.Error()
}

// Unwrap returns [ErrUnreadable].
func (*unreadableError) Unwrap() error { return ErrUnreadable }

// unreadableSID returns the sid if err is an [ErrUnreadable]; "" for other errors.
func unreadableSID(err error) string {
	if e, ok := errors.AsType[*unreadableError](err); ok {
		return e.sid
	}
	return ""
}

// maxSessions is the maximum number of sessions per user. It is large, because a ward may share an account.
const maxSessions = 1000

// Sessions starts, finds and ends sessions.
type Sessions struct {
	Durable      store.Store             // store for sessions
	Store        store.Store             // store for cutoffs; each session reserves space in it
	Lifetime     time.Duration           // session lifetime
	IdleTimeout  time.Duration           // time without activity after which a session expires; 0: no limit
	Accounts     *people.Accounts        // accounts of users
	Devices      *browser.Devices        // known browsers of users
	SignIns      *revalidation.SignIns   // sign-ins at identity providers, to be revalidated
	Revocations  *revocation.Revocations // revocations of the grants of ended sessions
	Participants *Participants           // clients that got a code or token in a session
	Notifier     *Notifier               // notifies these clients when a session ends
	Trail        *audit.Recorder         // audit log for ended sessions
	Logger       *slog.Logger            // log for failures to end excess sessions
}

var sidSize = len(oauth2.RandomToken())

// CurrentPerson returns the person who is signed in in the browser, or nil. Callers must check whether the client allows the
// sign-in method. If due, CurrentPerson revalidates the sign-in at the identity provider.
func (s *Sessions) CurrentPerson(r *http.Request) (*SignedInPerson, error) {
	stored, err := s.FindByBrowser(r)
	if stored == nil || err != nil {
		return nil, err
	}
	isUsable, renewable, err := s.SignIns.IsUsable(r.Context(), stored.SID, stored.Provider)
	if !isUsable || err != nil {
		return nil, err
	}
	user, err := s.User(r.Context(), stored)
	if user == nil || err != nil {
		return nil, err
	}
	if !stored.wasRecentlyActive(s.Now(), s.IdleTimeout) {
		if err := s.RecordActivity(r.Context(), stored.SID); err != nil {
			return nil, err
		}
	}
	audit.RecordAuthenticated(r.Context())
	signedIn := s.newSignedInPerson(stored, user)
	signedIn.ShouldRenew = renewable && r.Method == http.MethodGet && isTopLevelNavigation(r)
	return signedIn, nil
}

// isTopLevelNavigation reports whether a request is not from a frame. If the browser does not send Sec-Fetch-Dest (Fetch
// Metadata Request Headers §2.1), it returns true.
func isTopLevelNavigation(r *http.Request) bool {
	dest := r.Header.Get("Sec-Fetch-Dest")
	return dest == "" || dest == "document"
}

func (s *Sessions) newSignedInPerson(session *Session, user *people.User) *SignedInPerson {
	signedIn := &SignedInPerson{
		User: user, SignedInAt: session.SignedInAt, SignInAge: s.Now().Sub(session.SignedInAt), Provider: session.Provider, SID: session.SID,
		Subject: session.UpstreamSubject, AMR: session.AMR,
	}
	if p := s.Accounts.Providers[session.Provider]; p != nil {
		signedIn.ProviderName = p.Name
	}
	return signedIn
}

// User returns the user of a session. It returns nil if a new sign-in is required, because the user was removed or disabled, or
// the password or the link to the provider's account has changed.
func (s *Sessions) User(ctx context.Context, stored *Session) (*people.User, error) {
	user, err := s.Accounts.Find(ctx, stored.User)
	if user == nil || err != nil || user.Credential() != stored.CredentialDigest {
		return nil, err
	}
	isUnlinked, err := s.Accounts.IsUnlinked(ctx, user, stored.Provider, stored.UpstreamSubject)
	if isUnlinked || err != nil {
		return nil, err
	}
	return user, nil
}

// FindByBrowser returns the session of the browser that sent a request, or nil.
func (s *Sessions) FindByBrowser(r *http.Request) (*Session, error) {
	stored, err := s.FindEndable(r)
	if err != nil || stored == nil || stored.IsUnreadable() {
		return nil, err
	}
	return stored, nil
}

// FindEndable returns the session that the browser may end, or nil. This is the session of [Sessions.FindByBrowser]. If the
// record is unreadable, the root in the cookie is sufficient to end the session.
func (s *Sessions) FindEndable(r *http.Request) (*Session, error) {
	c := readCookie(r)
	if c.sid == "" {
		return nil, nil
	}
	stored, err := s.Find(r.Context(), c.sid)
	switch {
	case errors.Is(err, ErrUnreadable):
		if c.verifiedRoot() == "" {
			return nil, nil // as for a wrong secret
		}
		stored = newUnreadableSession(c.sid, "", err)
	case stored == nil || err != nil:
		return nil, err
	case !c.matchesSecret(stored.SecretDigest):
		return nil, nil
	}
	stored.root = c.verifiedRoot()
	return stored, nil
}

// Find returns the session with a sid, or nil. The error is [ErrUnreadable] for a malformed record, but not for one written by
// a newer version, which other gateways may be able to read.
func (s *Sessions) Find(ctx context.Context, sid string) (*Session, error) {
	value, err := s.Durable.Get(ctx, Key(sid))
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading session: %w", err)
	}
	return parseSession(sid, value)
}

// FindByIDToken is like [Sessions.Find], but for callers that have verified an ID token with the sid and the user. This is
// sufficient to end the session even if its record is malformed. In that case, only SID and User are set in the result.
func (s *Sessions) FindByIDToken(ctx context.Context, sid, user string) (*Session, error) {
	stored, err := s.Find(ctx, sid)
	switch {
	case errors.Is(err, ErrUnreadable):
		return newUnreadableSession(sid, user, err), nil
	case stored == nil || stored.User != user:
		return nil, err
	}
	return stored, nil
}

// Now returns the current time for sign-ins. Gateways that share a store use the store's clock.
func (s *Sessions) Now() time.Time { return store.Now(s.Durable) }

// Start signs a user in in the browser. The secret is always new, which prevents session fixation. A new sign-in of the same
// user continues the session and its participants. If another user was signed in, that session is ended.
func (s *Sessions) Start(w http.ResponseWriter, r *http.Request, user *people.User, session Session) (*SignedInPerson, error) {
	previous, err := s.FindEndable(r)
	if err != nil {
		return nil, err
	}
	session.User, session.CredentialDigest = user.ID, user.Credential()
	session.Address, session.UserAgent = audit.ClientAddress(r.Context()), r.UserAgent()[:min(len(r.UserAgent()), maxUserAgent)]
	now := s.Now().Truncate(time.Second)
	if session.SignedInAt.IsZero() || session.SignedInAt.After(now) {
		session.SignedInAt = now
	}
	session.root, session.StartedAt = newRoot(), now
	session.SID = deriveSID(session.root)
	device, err := s.Devices.TrustCookie(r, user.ID)
	if err != nil {
		return nil, err
	}
	isSameSignIn := previous != nil && previous.User == user.ID && previous.CredentialDigest == session.CredentialDigest
	if isSameSignIn {
		session.SID, session.root, session.StartedAt = previous.SID, previous.root, previous.StartedAt
	}
	if previous != nil && session.Provider == "" {
		session.ReplacedProvider, session.UpstreamIDToken = previous.LogoutProvider(), previous.UpstreamIDToken
	}
	pending := session.extractPendingSignIn()
	var cookie *http.Cookie
	if isSameSignIn {
		cookie, err = s.storeRenewed(r.Context(), &session, pending)
	} else {
		cookie, err = s.storeNewSession(r.Context(), &session, previous, pending)
	}
	if err != nil {
		return nil, err
	}
	if previous != nil && previous.User != user.ID {
		browser.ClearPages(w)
	}
	http.SetCookie(w, cookie)
	http.SetCookie(w, device)
	return s.newSignedInPerson(&session, user), nil
}

// extractPendingSignIn removes the provider's tokens from the session and returns them, because they are stored separately.
func (s *Session) extractPendingSignIn() revalidation.PendingSignIn {
	pending := revalidation.PendingSignIn{
		SignIn: revalidation.SignIn{User: s.User, SID: s.SID, Provider: s.Provider}, Subject: s.UpstreamSubject, ProviderTokens: s.ProviderTokens,
	}
	s.ProviderTokens = relyingparty.ProviderTokens{}
	return pending
}

// storeRenewed stores a continued session and its identity provider's tokens, and extends the lifetime of the session's lists.
func (s *Sessions) storeRenewed(ctx context.Context, session *Session, pending revalidation.PendingSignIn) (cookie *http.Cookie, err error) {
	err = store.Retry(ctx, func() error { // retried if concurrent checks or grants change the sign-in
		renewCalls, err := s.Participants.renewCalls(ctx, session.SID)
		if err != nil {
			return err
		}
		calls, err := s.SignIns.StoreCalls(ctx, pending)
		if err == nil {
			cookie, err = s.storeSession(ctx, session, append(renewCalls, calls...)...)
		}
		return err
	})
	return cookie, err
}

// storeNewSession stores a new session and the tokens of its identity provider. It ends the session that it replaces and, beyond
// maxSessions, the user's oldest sessions.
func (s *Sessions) storeNewSession(ctx context.Context, session, previous *Session, pending revalidation.PendingSignIn) (*http.Cookie, error) {
	calls, err := s.SignIns.StoreCalls(ctx, pending)
	if err != nil {
		return nil, err
	}
	cookie, err := s.storeSession(ctx, session, calls...)
	if err != nil || previous == nil {
		return cookie, err
	}
	audit.RecordSessionEndReason(ctx, "replaced by another sign-in in the same browser")
	if err := s.End(ctx, previous); err != nil {
		return nil, errors.Join(err, s.delete(context.WithoutCancel(ctx), session.SID))
	}
	return cookie, nil
}

const maxUserAgent = 200 // in bytes

// storeSession stores a session with a new secret, adds it to its lists, and executes other calls to the durable store in the
// same step. It reserves space for the session's cutoff in the other store and returns the session cookie. If the identity
// provider has meanwhile ended the sign-in, it ends the session and returns [ErrEnded].
func (s *Sessions) storeSession(ctx context.Context, session *Session, calls ...*store.Call) (*http.Cookie, error) {
	cookie := newCookie(session.SID, session.root)
	session.SecretDigest, session.LastActiveAt = cookie.digest(), s.Now()
	session.ExpiresAt = session.LastActiveAt.Add(s.Lifetime)
	value, err := store.ToJSON(session)
	if err != nil {
		return nil, err
	}
	stored := &store.Call{Op: store.Put, Key: Key(session.SID), Value: value, TTL: s.ttl(session)}
	logoutCalls := session.upstreamLogoutCalls()
	err = s.storeAndList(ctx, session, func(listCalls []*store.Call) error {
		steps := []store.Step{store.NewStep(s.Durable, slices.Concat(calls, listCalls, []*store.Call{stored}, logoutCalls)...)}
		if s.Durable != s.Store {
			reservation := &store.Call{Op: store.Put, Key: Key(session.SID), TTL: s.Lifetime}
			steps = append([]store.Step{store.NewStep(s.Store, reservation)}, steps...)
		}
		return store.Do(ctx, steps...)
	})
	if err != nil {
		return nil, err
	}
	if session.wasEndedUpstream(logoutCalls) {
		audit.RecordSessionEndReason(ctx, "signed out at the identity provider during the sign-in")
		return nil, errors.Join(s.End(ctx, session), ErrEnded)
	}
	return browser.NewCookie(browser.SessionCookie, cookie.String()), nil
}

// endOldest ends a user's oldest sessions. It only logs failures, because the new sign-in has succeeded.
func (s *Sessions) endOldest(ctx context.Context, user string, sids []string) {
	audit.RecordSessionEndReason(ctx, "session limit of the user exceeded")
	var errs []error
	for _, sid := range sids {
		_, err := s.EndByID(ctx, sid)
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		s.Logger.ErrorContext(ctx, "failed to end excess sessions of user", "user", user, "error", err)
	}
}

// A cookie identifies a session and proves that the browser possesses it. Its format is <sid>.<root>.<secret>.
//
// The root and the secret authenticate the session; the record contains their digest. The secret is new at each sign-in.
//
// The root remains the same until the session ends. The sid is derived from the root. It is public, because clients receive it
// in ID tokens, and therefore proves nothing. The root proves possession even if there is no readable record, but only for
// ending the session.
type cookie struct {
	sid           string
	rootAndSecret string // <root>.<secret>
}

// readCookie returns the session cookie of a request, or an empty one.
func readCookie(r *http.Request) (c cookie) {
	if sent, err := r.Cookie(browser.SessionCookie); err == nil {
		c.sid, c.rootAndSecret, _ = strings.Cut(sent.Value, ".")
	}
	return c
}

// newRoot returns the root of a new session. Its sid does not start with "-", so that fhir-sessions end does not mistake it for
// a flag.
func newRoot() string {
	for {
		if root := oauth2.RandomToken(); deriveSID(root)[0] != '-' {
			return root
		}
	}
}

// deriveSID returns the sid of a root.
func deriveSID(root string) string {
	sum := sha256.Sum256([]byte("session root\x00" + root))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// newCookie returns a cookie for a session with a new secret.
func newCookie(sid, root string) cookie { return cookie{sid, root + "." + oauth2.RandomToken()} }

func (c cookie) String() string { return c.sid + "." + c.rootAndSecret }

// digest returns the digest that is stored in the session's record.
func (c cookie) digest() [sha256.Size]byte { return sha256.Sum256([]byte(c.rootAndSecret)) }

// matchesSecret reports whether the cookie is from the latest sign-in of the session, according to the digest in the record.
func (c cookie) matchesSecret(recordDigest [sha256.Size]byte) bool {
	sum := c.digest()
	return subtle.ConstantTimeCompare(sum[:], recordDigest[:]) == 1
}

// verifiedRoot returns the root in the cookie, or "" if the sid is not derived from it.
func (c cookie) verifiedRoot() string {
	root, _, _ := strings.Cut(c.rootAndSecret, ".")
	if deriveSID(root) != c.sid {
		return ""
	}
	return root
}

// RecordActivity extends a session because its user is active. If no activity is recorded for [Sessions.IdleTimeout], it
// expires. Activity is recorded at most ten times per IdleTimeout, so a session may expire a tenth of it too early.
func (s *Sessions) RecordActivity(ctx context.Context, sid string) error {
	if s.IdleTimeout == 0 {
		return nil
	}
	value, err := s.Durable.Get(ctx, Key(sid))
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading session: %w", err)
	}
	stored, err := parseSession(sid, value)
	if err != nil || stored.wasRecentlyActive(s.Now(), s.IdleTimeout) {
		return err
	}
	stored.LastActiveAt = s.Now()
	if stored.ExpiresAt.IsZero() { // stored by a version that did not set ExpiresAt
		stored.ExpiresAt = stored.SignedInAt.Add(s.Lifetime)
	}
	if !stored.LastActiveAt.Before(stored.ExpiresAt) {
		return nil
	}
	next, err := store.ToJSON(stored)
	if err != nil {
		return err
	}
	err = s.Durable.Do(ctx, &store.Call{Op: store.Swap, Key: Key(sid), Old: value, Value: next, TTL: s.ttl(stored)})
	if store.IsConflict(err) || errors.Is(err, store.ErrNotFound) { // the user has signed in or out concurrently
		return nil
	}
	return err
}

// wasRecentlyActive reports whether activity was recorded less than a tenth of the idle timeout ago.
func (s *Session) wasRecentlyActive(now time.Time, idle time.Duration) bool {
	return now.Sub(s.LastActiveAt) < idle/10
}

// ttl returns the lifetime of a session's record if there is no further activity.
func (s *Sessions) ttl(stored *Session) time.Duration {
	untilExpiry := stored.ExpiresAt.Sub(s.Now())
	if s.IdleTimeout > 0 {
		return min(untilExpiry, s.IdleTimeout)
	}
	return untilExpiry
}
