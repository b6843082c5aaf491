package session

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/browser"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/internal/revocation"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
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
}

// Way is how the person signed in: a key of a client's list of identity providers.
func (s *SignedIn) Way() string { return cmp.Or(s.Provider, people.Local) }

// ACR is the class of the sign-in.
func (s *SignedIn) ACR() string { return oauth2.ACR(s.AMR, s.Provider) }

// Session is a session as stored. It is only written when somebody signs in.
type Session struct {
	Secret     [sha256.Size]byte `json:"secret"`               // the SHA-256 of root and secret in the cookie
	User       string            `json:"user"`                 // the sub
	Credential [sha256.Size]byte `json:"credential"`           // of the user at the time
	Began      time.Time         `json:"began"`                // when the session began
	At         time.Time         `json:"at"`                   // of the latest sign-in, here or at the provider
	Provider   string            `json:"provider,omitempty"`   // key of the identity provider; "" for a password here
	AMR        []string          `json:"amr,omitempty"`        // authentication methods (RFC 8176)
	Address    string            `json:"address,omitempty"`    // of the latest sign-in
	UserAgent  string            `json:"user_agent,omitempty"` // of the latest sign-in

	// UpstreamSubject and UpstreamSession are the sub and sid of the provider's ID
	// token, by which its logout tokens name the session (backchannellogout.go).
	UpstreamSubject string `json:"upstream_sub,omitempty"`
	UpstreamSession string `json:"upstream_sid,omitempty"` // see UpstreamSubject

	// UpstreamIDToken is kept if the provider's keep_upstream_token says so.
	UpstreamIDToken string `json:"upstream_id_token,omitempty"`

	SID string `json:"-"` // part of the store's key

	root       string // part of the cookie; "" in sessions of earlier versions
	unreadable error  // why nothing but SID and root, and perhaps User, is known; else nil
}

// Key is the store's key of a session. The sid is public, unlike the secret in the cookie.
func Key(sid string) string { return "session:" + sid }

// Sessions starts, finds and ends sessions.
type Sessions struct {
	Durable      store.Store             // holds the sessions
	Store        store.Store             // has room reserved for their cutoffs
	Lifetime     time.Duration           // of a session
	Accounts     *people.Accounts        // whose sessions they are
	Devices      *browser.Devices        // learn who signed in
	Revocations  *revocation.Revocations // void what ended sessions gave
	Participants *Participants           // clients that got something
	Notifier     *Notifier               // tells them of the end
	Trail        *audit.Recorder         // records ended sessions
	Logger       *slog.Logger            // gets failures to limit sessions
}

// Current returns who is signed in at this browser, or nil. A client may not accept the way
// they signed in.
func (s *Sessions) Current(r *http.Request) (*SignedIn, error) {
	stored, err := s.Stored(r)
	if stored == nil || err != nil {
		return nil, err
	}
	user, err := s.User(r.Context(), stored)
	if user == nil || err != nil {
		return nil, err
	}
	audit.NoteAuthenticated(r.Context())
	return s.signedIn(stored, user), nil
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
	case !c.signsIn(stored):
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
	var cookie *http.Cookie
	if earlier != nil && earlier.User == user.ID && earlier.Credential == session.Credential {
		session.SID, session.root, session.Began = earlier.SID, earlier.root, earlier.Began
		cookie, err = s.renew(r.Context(), &session)
	} else {
		cookie, err = s.add(r.Context(), &session, earlier)
	}
	if err != nil {
		return nil, err
	}
	http.SetCookie(w, cookie)
	http.SetCookie(w, device)
	return s.signedIn(&session, user), nil
}

// Now is the time by which sign-ins are dated: gateways that share a store have one clock.
func (s *Sessions) Now() time.Time { return store.Now(s.Durable) }

// renew stores a continued session.
func (s *Sessions) renew(ctx context.Context, session *Session) (*http.Cookie, error) {
	renewing, err := s.Participants.renewing(ctx, session.SID)
	if err != nil {
		return nil, err
	}
	return s.put(ctx, session, renewing...)
}

// add stores a new session, and ends the one it replaces, and the person's oldest if there
// are too many.
func (s *Sessions) add(ctx context.Context, session, earlier *Session) (*http.Cookie, error) {
	list := s.listOf(session.User)
	cookie, err := s.put(ctx, session, list.Adding(session.SID))
	for errors.Is(err, store.ErrTooLong) && ctx.Err() == nil {
		var dropped []string
		if dropped, err = list.Fold(ctx, len(session.SID)); err == nil {
			s.endDropped(ctx, session.User, dropped)
			cookie, err = s.put(ctx, session, list.Adding(session.SID))
		}
	}
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

// put stores a session with a new secret, makes other calls to the durable store in the same
// step, and returns the session's cookie. Room is reserved for its cutoff, if that will be in
// another store.
func (s *Sessions) put(ctx context.Context, session *Session, calls ...*store.Call) (*http.Cookie, error) {
	cookie := newCookie(session.SID, session.root)
	session.Secret = cookie.digest()
	value, err := store.ToJSON(session)
	if err != nil {
		return nil, err
	}
	stored := &store.Call{Op: store.Put, Key: Key(session.SID), Value: value, TTL: s.Lifetime}
	steps := []store.Step{store.In(s.Durable, append(calls, stored)...)}
	if s.Durable != s.Store {
		reserved := &store.Call{Op: store.Put, Key: Key(session.SID), TTL: s.Lifetime}
		steps = append([]store.Step{store.In(s.Store, reserved)}, steps...)
	}
	if err := store.Do(ctx, steps...); err != nil {
		return nil, err
	}
	return browser.NewCookie(browser.SessionCookie, cookie.String()), nil
}
