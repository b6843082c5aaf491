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

// SignedIn is a person who is signed in.
type SignedIn struct {
	User     *people.User  // who they are
	At       time.Time     // when they last signed in
	Age      time.Duration // how long ago that is
	Provider string        // key of the identity provider; "" for a password here
	SID      string        // names the session to clients (OpenID Connect Back-Channel Logout §2.1)
	Subject  string        // sub at that provider
	AMR      []string      // authentication methods (RFC 8176)

	// Renewable is whether the browser is to be sent to the provider before it gets an answer, because the provider can no longer be
	// asked about the person (package signin). It is false for forms, which would be lost, and in frames, where browsers may
	// withhold the provider's cookies: it would not recognize the person.
	Renewable bool
}

// Way is how the person signed in: a key of a client's list of identity providers.
func (s *SignedIn) Way() string { return cmp.Or(s.Provider, people.Local) }

// ACR is the class of the sign-in.
func (s *SignedIn) ACR() string { return oauth2.ACR(s.AMR, s.Provider) }

// Session is a stored session. It is written at each sign-in and, if [Sessions].Idle is set, while the person is active.
type Session struct {
	Secret     [sha256.Size]byte `json:"secret"`               // the SHA-256 of root and secret in the cookie
	User       string            `json:"user"`                 // the sub
	Credential [sha256.Size]byte `json:"credential"`           // of the user at the time
	Began      time.Time         `json:"began"`                // when the session began
	At         time.Time         `json:"at"`                   // of the latest sign-in, here or at the provider
	Until      time.Time         `json:"until,omitzero"`       // when the session ends, however active the person is
	Seen       time.Time         `json:"seen,omitzero"`        // when the person was last active, to about a tenth of [Sessions].Idle
	Provider   string            `json:"provider,omitempty"`   // key of the identity provider; "" for a password here
	AMR        []string          `json:"amr,omitempty"`        // authentication methods (RFC 8176)
	Address    string            `json:"address,omitempty"`    // of the latest sign-in
	UserAgent  string            `json:"user_agent,omitempty"` // of the latest sign-in

	// UpstreamSubject and UpstreamSession are the sub and sid of the provider's ID
	// token, by which its logout tokens name the session (end.go).
	UpstreamSubject string `json:"upstream_sub,omitempty"`
	UpstreamSession string `json:"upstream_sid,omitempty"` // see UpstreamSubject

	// UpstreamAt is when the provider was asked for that token: what it ends later ends this session, even one that is
	// yet to be stored.
	UpstreamAt time.Time `json:"upstream_at,omitzero"`

	// UpstreamIDToken is kept if the provider's keep_upstream_token says so.
	UpstreamIDToken string `json:"upstream_id_token,omitempty"`

	relyingparty.Held // is kept apart from the session, sealed (package revalidation)

	SID string `json:"-"` // part of the store's key

	root       string // part of the cookie
	unreadable error  // why nothing but SID and root, and perhaps User, is known; else nil
}

// Upstream is who the person is at the identity provider.
func (s *Session) Upstream() audit.Person {
	return audit.Person{Provider: s.Provider, Subject: s.UpstreamSubject}
}

// Key is the store's key of a session. The sid is public, unlike the secret in the cookie.
func Key(sid string) string { return "session:" + sid }

// parse decodes the record of a session; nil if there is none.
func parse(sid string, value []byte) (*Session, error) {
	stored, err := store.FromJSON[Session](value)
	switch {
	case errors.Is(err, store.ErrNewer):
		return nil, fmt.Errorf("reading session %s: %w", sid, err)
	case err != nil:
		return nil, &unreadableError{sid, err}
	case stored != nil:
		stored.SID = sid
	}
	return stored, nil
}

// Reading returns the call that finds whether a session lasts. Without a value, it has ended:
// see [ErrEnded].
func Reading(sid string) *store.Call { return &store.Call{Op: store.Get, Key: Key(sid)} }

// ErrEnded says that a session ended before its person could be answered.
var ErrEnded = &oauth2.Error{Code: "login_required", Description: "the person has signed out meanwhile"}

// ErrUnreadable says that the record of a session is malformed. Such a session signs nobody in,
// but what clients got in it lasts until it is ended.
var ErrUnreadable = errors.New("the record of the session cannot be read")

// IsUnreadable reports whether the record is malformed; see [ErrUnreadable].
func (s *Session) IsUnreadable() bool { return s.unreadable != nil }

// unreadable stands for a session whose record cannot be read. The user is empty if unknown.
func unreadable(sid, user string, err error) *Session {
	return &Session{SID: sid, User: user, unreadable: err}
}

// unreadableError is [ErrUnreadable] of one session.
type unreadableError struct {
	sid string
	why error
}

// Error names the session, so that an operator can end it.
func (e *unreadableError) Error() string {
	return "session " + e.sid + ": " + ErrUnreadable.Error() + ": " + e.why.Error()
}

// Unwrap returns [ErrUnreadable].
func (*unreadableError) Unwrap() error { return ErrUnreadable }

// unreadableSID returns of which session an error is [ErrUnreadable]; "" if of none.
func unreadableSID(err error) string {
	if e, ok := errors.AsType[*unreadableError](err); ok {
		return e.sid
	}
	return ""
}

// maxSessions is how many sessions a person can have. A ward may share an account.
const maxSessions = 1000

// Sessions starts, finds and ends sessions.
type Sessions struct {
	Durable      store.Store             // holds the sessions
	Store        store.Store             // has room reserved for their cutoffs
	Lifetime     time.Duration           // of a session
	Idle         time.Duration           // time without activity until a session expires; 0: no limit
	Accounts     *people.Accounts        // whose sessions they are
	Devices      *browser.Devices        // learn who signed in
	SignIns      *revalidation.SignIns   // at identity providers, which are asked again
	Revocations  *revocation.Revocations // void what ended sessions gave
	Participants *Participants           // clients that got something
	Notifier     *Notifier               // tells them of the end
	Trail        *audit.Recorder         // records ended sessions
	Logger       *slog.Logger            // gets failures to limit sessions
}

var sidSize = len(oauth2.RandomToken())

// Current returns who is signed in at this browser, or nil. A client may not accept the way
// they signed in. It asks their identity provider again if that is due.
func (s *Sessions) Current(r *http.Request) (*SignedIn, error) {
	stored, err := s.Stored(r)
	if stored == nil || err != nil {
		return nil, err
	}
	serves, renewable, err := s.SignIns.Serves(r.Context(), stored.SID, stored.Provider)
	if !serves || err != nil {
		return nil, err
	}
	user, err := s.User(r.Context(), stored)
	if user == nil || err != nil {
		return nil, err
	}
	if !stored.isRecorded(s.Now(), s.Idle) {
		if err := s.RecordActivity(r.Context(), stored.SID); err != nil {
			return nil, err
		}
	}
	audit.NoteAuthenticated(r.Context())
	signedIn := s.signedIn(stored, user)
	signedIn.Renewable = renewable && r.Method == http.MethodGet && isPage(r)
	return signedIn, nil
}

// isPage reports whether a request is for the page of a window and not of a frame. Requests without Sec-Fetch-Dest (Fetch
// Metadata Request Headers §2.1) count as pages.
func isPage(r *http.Request) bool {
	dest := r.Header.Get("Sec-Fetch-Dest")
	return dest == "" || dest == "document"
}

func (s *Sessions) signedIn(session *Session, user *people.User) *SignedIn {
	return &SignedIn{
		User: user, At: session.At, Age: s.Now().Sub(session.At), Provider: session.Provider, SID: session.SID,
		Subject: session.UpstreamSubject, AMR: session.AMR,
	}
}

// User returns the person of a session; nil if they must sign in again: they were removed or
// disabled, or their password or the link to the provider's account changed.
func (s *Sessions) User(ctx context.Context, stored *Session) (*people.User, error) {
	user, err := s.Accounts.Find(ctx, stored.User)
	if user == nil || err != nil || user.Credential() != stored.Credential {
		return nil, err
	}
	unlinked, err := s.Accounts.Unlinked(ctx, user, stored.Provider, stored.UpstreamSubject)
	if unlinked || err != nil {
		return nil, err
	}
	return user, nil
}

// Stored returns the session of this browser, or nil.
func (s *Sessions) Stored(r *http.Request) (*Session, error) {
	stored, err := s.OfBrowser(r)
	if err != nil || stored == nil || stored.IsUnreadable() {
		return nil, err
	}
	return stored, nil
}

// OfBrowser returns the session that this browser may end, or nil: that of [Sessions.Stored], or
// one whose record cannot be read, if the cookie proves all the same that it is the browser's.
func (s *Sessions) OfBrowser(r *http.Request) (*Session, error) {
	c := readCookie(r)
	if c.sid == "" {
		return nil, nil
	}
	stored, err := s.Find(r.Context(), c.sid)
	switch {
	case errors.Is(err, ErrUnreadable):
		if c.root() == "" {
			return nil, nil // as if the secret were wrong
		}
		stored = unreadable(c.sid, "", err)
	case stored == nil || err != nil:
		return nil, err
	case !c.signsIn(stored.Secret):
		return nil, nil
	}
	stored.root = c.root()
	return stored, nil
}

// Find returns the session with a sid, or nil. If its record is malformed, the error is
// [ErrUnreadable]. That of a later version is another error: a gateway of that version can read it.
func (s *Sessions) Find(ctx context.Context, sid string) (*Session, error) {
	value, err := s.Durable.Get(ctx, Key(sid))
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading a session: %w", err)
	}
	return parse(sid, value)
}

// FindNamed is [Sessions.Find] for whoever has an ID token of ours that names the sid and its
// user. That is proof enough to end the session, also if its record is malformed; only then does
// the result hold nothing else.
func (s *Sessions) FindNamed(ctx context.Context, sid, user string) (*Session, error) {
	stored, err := s.Find(ctx, sid)
	switch {
	case errors.Is(err, ErrUnreadable):
		return unreadable(sid, user, err), nil
	case stored == nil || stored.User != user:
		return nil, err
	}
	return stored, nil
}

// Now is the time by which sign-ins are dated: gateways that share a store have one clock.
func (s *Sessions) Now() time.Time { return store.Now(s.Durable) }

// Start signs a user in at this browser. The secret is always new, to prevent session
// fixation. A user who signs in again keeps the session with its participants; another
// user's session ends.
func (s *Sessions) Start(w http.ResponseWriter, r *http.Request, user *people.User, session Session) (*SignedIn, error) {
	earlier, err := s.OfBrowser(r)
	if err != nil {
		return nil, err
	}
	session.User, session.Credential = user.ID, user.Credential()
	session.Address, session.UserAgent = audit.ClientAddress(r.Context()), r.UserAgent()[:min(len(r.UserAgent()), maxUserAgent)]
	now := s.Now().Truncate(time.Second)
	if session.At.IsZero() || session.At.After(now) {
		session.At = now
	}
	session.root, session.Began = newRoot(), now
	session.SID = sidOf(session.root)
	device, err := s.Devices.Remember(r, user.ID)
	if err != nil {
		return nil, err
	}
	again := earlier != nil && earlier.User == user.ID && earlier.Credential == session.Credential
	if again {
		session.SID, session.root, session.Began = earlier.SID, earlier.root, earlier.Began
	}
	begun := session.begun()
	var cookie *http.Cookie
	if again {
		cookie, err = s.renew(r.Context(), &session, begun)
	} else {
		cookie, err = s.add(r.Context(), &session, earlier, begun)
	}
	if err != nil {
		return nil, err
	}
	http.SetCookie(w, cookie)
	http.SetCookie(w, device)
	return s.signedIn(&session, user), nil
}

// begun takes what the identity provider can be asked by out of a session: it is kept apart.
func (s *Session) begun() revalidation.Begun {
	begun := revalidation.Begun{
		SignIn: revalidation.SignIn{User: s.User, SID: s.SID, Provider: s.Provider}, Subject: s.UpstreamSubject, Held: s.Held,
	}
	s.Held = relyingparty.Held{}
	return begun
}

// renew stores a continued session, and what its provider can be asked by. Its lists must last as long as it does.
func (s *Sessions) renew(ctx context.Context, session *Session, begun revalidation.Begun) (cookie *http.Cookie, err error) {
	err = store.Retry(ctx, func() error { // it may be lost to who asks the provider, or keeps the sign-in for a grant
		renewing, err := s.Participants.renewing(ctx, session.SID)
		if err != nil {
			return err
		}
		calls, err := s.SignIns.Starting(ctx, begun)
		if err == nil {
			cookie, err = s.put(ctx, session, append(renewing, calls...)...)
		}
		return err
	})
	return cookie, err
}

// add stores a new session and what its provider can be asked by, and ends the one it replaces,
// and the person's oldest if there are too many.
func (s *Sessions) add(ctx context.Context, session, earlier *Session, begun revalidation.Begun) (*http.Cookie, error) {
	calls, err := s.SignIns.Starting(ctx, begun)
	if err != nil {
		return nil, err
	}
	cookie, err := s.put(ctx, session, calls...)
	if err != nil || earlier == nil {
		return cookie, err
	}
	audit.NoteSessionEndReason(ctx, "somebody signed in in its place in the same browser")
	if err := s.End(ctx, earlier); err != nil {
		return nil, errors.Join(err, s.delete(context.WithoutCancel(ctx), session.SID))
	}
	return cookie, nil
}

const maxUserAgent = 200 // bytes

// put stores a session with a new secret, lists it, makes other calls to the durable store in the same
// step, and returns the session's cookie. If its provider has ended the sign-in meanwhile, so does this. Room is reserved for its cutoff, if that will be in
// another store.
func (s *Sessions) put(ctx context.Context, session *Session, calls ...*store.Call) (*http.Cookie, error) {
	cookie := newCookie(session.SID, session.root)
	session.Secret, session.Seen = cookie.digest(), s.Now()
	session.Until = session.Seen.Add(s.Lifetime)
	value, err := store.ToJSON(session)
	if err != nil {
		return nil, err
	}
	stored := &store.Call{Op: store.Put, Key: Key(session.SID), Value: value, TTL: s.ttl(session)}
	endings := session.endings()
	err = s.putListed(ctx, session, func(listing []*store.Call) error {
		steps := []store.Step{store.In(s.Durable, slices.Concat(calls, listing, []*store.Call{stored}, endings)...)}
		if s.Durable != s.Store {
			reserved := &store.Call{Op: store.Put, Key: Key(session.SID), TTL: s.Lifetime}
			steps = append([]store.Step{store.In(s.Store, reserved)}, steps...)
		}
		return store.Do(ctx, steps...)
	})
	if err != nil {
		return nil, err
	}
	if session.endedBy(endings) {
		audit.NoteSessionEndReason(ctx, "the identity provider ended the sign-in meanwhile")
		return nil, errors.Join(s.End(ctx, session), ErrEnded)
	}
	return browser.NewCookie(browser.SessionCookie, cookie.String()), nil
}

// endDropped ends a person's oldest sessions. The person can sign in all the same, so a
// failure is only logged.
func (s *Sessions) endDropped(ctx context.Context, user string, sids []string) {
	audit.NoteSessionEndReason(ctx, "the person has too many newer ones")
	var errs []error
	for _, sid := range sids {
		_, err := s.EndByID(ctx, sid)
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		s.Logger.ErrorContext(ctx, "sessions of a person beyond the limit not ended", "user", user, "error", err)
	}
}

// A cookie names a session, and proves that it is the browser's. Its form is
// <sid>.<root>.<secret>.
//
// Whoever has root and secret, whose digest is in the record, is signed in. The secret is new at
// each sign-in.
//
// The root is as old as the session, whose sid is its digest. The sid is public: clients find it
// in ID tokens, and it proves nothing. The root proves without the record that the session is the
// browser's. That is enough to end a session whose record cannot be read, and for nothing
// else.
type cookie struct {
	sid  string
	rest string // <root>.<secret>
}

// readCookie returns the session cookie of a request; an empty one if there is none.
func readCookie(r *http.Request) (c cookie) {
	if sent, err := r.Cookie(browser.SessionCookie); err == nil {
		c.sid, c.rest, _ = strings.Cut(sent.Value, ".")
	}
	return c
}

// newRoot returns the root of a new session. Its sid does not begin with "-", so that fhir-sessions end does not read it as a flag.
func newRoot() string {
	for {
		if root := oauth2.RandomToken(); sidOf(root)[0] != '-' {
			return root
		}
	}
}

// sidOf returns the sid that a root leads to.
func sidOf(root string) string {
	sum := sha256.Sum256([]byte("session root\x00" + root))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// newCookie returns a cookie for a session, with a new secret.
func newCookie(sid, root string) cookie { return cookie{sid, root + "." + oauth2.RandomToken()} }

func (c cookie) String() string { return c.sid + "." + c.rest }

// digest is what the record keeps of the cookie.
func (c cookie) digest() [sha256.Size]byte { return sha256.Sum256([]byte(c.rest)) }

// signsIn reports whether the cookie is that of a session's latest sign-in, by the secret in its record.
func (c cookie) signsIn(secret [sha256.Size]byte) bool {
	sum := c.digest()
	return subtle.ConstantTimeCompare(sum[:], secret[:]) == 1
}

// root returns the root of the session, or "" if the cookie does not have it.
func (c cookie) root() string {
	root, _, _ := strings.Cut(c.rest, ".")
	if sidOf(root) != c.sid {
		return ""
	}
	return root
}

// RecordActivity extends a session because its person is active. Without activity for [Sessions.Idle], the session's record
// expires. Activity is recorded at most ten times within Idle, so the session may expire a tenth of Idle early.
func (s *Sessions) RecordActivity(ctx context.Context, sid string) error {
	if s.Idle == 0 {
		return nil
	}
	value, err := s.Durable.Get(ctx, Key(sid))
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading a session: %w", err)
	}
	stored, err := parse(sid, value)
	if err != nil || stored.isRecorded(s.Now(), s.Idle) {
		return err
	}
	stored.Seen = s.Now()
	if stored.Until.IsZero() { // stored by a version without Until
		stored.Until = stored.At.Add(s.Lifetime)
	}
	if !stored.Seen.Before(stored.Until) {
		return nil
	}
	next, err := store.ToJSON(stored)
	if err != nil {
		return err
	}
	err = s.Durable.Do(ctx, &store.Call{Op: store.Swap, Key: Key(sid), Old: value, Value: next, TTL: s.ttl(stored)})
	if store.Lost(err) || errors.Is(err, store.ErrNotFound) { // the person has signed in again, or out
		return nil
	}
	return err
}

// isRecorded reports whether the person's activity was recorded within the last tenth of the idle limit.
func (s *Session) isRecorded(now time.Time, idle time.Duration) bool {
	return now.Sub(s.Seen) < idle/10
}

// ttl is the lifetime of a session's record without further activity.
func (s *Sessions) ttl(stored *Session) time.Duration {
	left := stored.Until.Sub(s.Now())
	if s.Idle > 0 {
		return min(left, s.Idle)
	}
	return left
}
