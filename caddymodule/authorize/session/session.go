package session

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/browser"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/lockout"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/revocation"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// SignedIn is a person who signed in, as a session remembers it.
type SignedIn struct {
	User     *people.User // who signed in
	At       time.Time    // when they last proved who they are
	Provider string       // the identity provider's key; "" where the password was checked here
	SID      string       // names the session to clients (OpenID Connect Back-Channel Logout §2.1)

	Subject string   // at that provider
	AMR     []string // how they proved who they are (RFC 8176)
}

// Way is how the person signed in, in the words of a client's list.
func (s *SignedIn) Way() string {
	if s.Provider == "" {
		return people.Local
	}
	return s.Provider
}

// Session is the form of a session in the durable [store.Store]: a restart signs nobody
// out. It is written when somebody signs in, and not when they go on.
type Session struct {
	// Secret is the SHA-256 of what the cookie holds beside the session's id.
	Secret [sha256.Size]byte `json:"secret"`

	User       string            `json:"user"`                 // the sub
	Credential [sha256.Size]byte `json:"credential"`           // of the user at the time
	Began      time.Time         `json:"began"`                // when the session began
	At         time.Time         `json:"at"`                   // of the latest sign-in, here or at the provider
	Provider   string            `json:"provider,omitempty"`   // the key; "" where the password was checked here
	AMR        []string          `json:"amr,omitempty"`        // how they proved who they are (RFC 8176)
	Address    string            `json:"address,omitempty"`    // they last signed in from
	UserAgent  string            `json:"user_agent,omitempty"` // they last did so with

	// UpstreamSubject and UpstreamSession are the sub and sid of the provider's ID
	// token, by which it says that the person signed out there (upstreamlogout.go).
	UpstreamSubject string `json:"upstream_sub,omitempty"`
	UpstreamSession string `json:"upstream_sid,omitempty"` // see UpstreamSubject

	// UpstreamIDToken is there where the provider's keep_upstream_token asks.
	UpstreamIDToken string `json:"upstream_id_token,omitempty"`

	SID string `json:"-"` // that of signedIn
}

// Key leads to the session with a sid. The sid is public; what signs in is
// the secret in the cookie.
func Key(sid string) string { return "session:" + sid }

// Sessions are the sign-ins that last.
type Sessions struct {
	Durable      store.Store             // of the sessions
	Store        store.Store             // keeps room for what a session's end must put there
	Lifetime     time.Duration           // of a sign-in
	Accounts     *people.Accounts        // whose sessions they are
	Clients      *client.Registry        // that are told
	Devices      *browser.Devices        // that people are known at
	Revocations  *revocation.Revocations // what ended sessions gave is void
	Participants *Participants           // who got something in them
	Notifier     *Notifier               // tells these of the end
	Trail        *audit.Recorder         // of sessions that end
	Logger       *slog.Logger            // of what cannot be counted
}

// Current returns who is signed in at this browser, or nil. Whether the way it
// began will do for a client is for offer.serves to say.
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
	return stored.signedIn(user), nil
}

func (s *Session) signedIn(user *people.User) *SignedIn {
	return &SignedIn{User: user, At: s.At, Provider: s.Provider, SID: s.SID, Subject: s.UpstreamSubject, AMR: s.AMR}
}

// User is whose session it is, or nil. A session ends with its user's
// configuration: who was removed or disabled, has another password by now, or came by
// a link that there is no more, must sign in again.
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
	cookie, err := r.Cookie(browser.SessionCookie)
	if err != nil {
		return nil, nil
	}
	sid, secret, _ := strings.Cut(cookie.Value, ".")
	stored, err := s.Read(r.Context(), sid)
	if stored == nil || err != nil {
		return nil, err
	}
	if sum := sha256.Sum256([]byte(secret)); subtle.ConstantTimeCompare(sum[:], stored.Secret[:]) != 1 {
		return nil, nil
	}
	return stored, nil
}

// Read returns the session with a sid, or nil.
func (s *Sessions) Read(ctx context.Context, sid string) (*Session, error) {
	value, err := s.Durable.Get(ctx, Key(sid))
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	stored := &Session{SID: sid}
	if err == nil {
		err = json.Unmarshal(value, stored)
	}
	if err != nil {
		return nil, fmt.Errorf("reading a session: %w", err)
	}
	return stored, nil
}

// Start signs a user in at this browser under a new secret, so that one
// that somebody fixed or read before leads nowhere. A user who signs in again
// goes on with the same session: what clients got in it stays with it. Another
// one's session ends.
func (s *Sessions) Start(w http.ResponseWriter, r *http.Request, user *people.User, session Session) (*SignedIn, error) {
	earlier, err := s.Stored(r)
	if err != nil {
		return nil, err
	}
	session.User, session.Credential = user.ID, user.Credential()
	session.Address, session.UserAgent = audit.ClientAddress(r.Context()), r.UserAgent()[:min(len(r.UserAgent()), maxUserAgent)]
	now := time.Now().Truncate(time.Second)
	if session.At.IsZero() || session.At.After(now) {
		session.At = now
	}
	session.SID, session.Began = oauth2.RandomToken(), now
	device, err := s.Devices.Remember(r, lockout.CanonicalName(user.ID))
	if err != nil {
		return nil, err
	}
	var cookie *http.Cookie
	if earlier != nil && earlier.User == user.ID && earlier.Credential == session.Credential {
		session.SID, session.Began = earlier.SID, earlier.Began
		cookie, err = s.renewSession(r.Context(), &session)
	} else {
		cookie, err = s.addSession(r.Context(), &session, earlier)
	}
	if err != nil {
		return nil, err
	}
	http.SetCookie(w, cookie)
	http.SetCookie(w, device)
	return session.signedIn(user), nil
}

// renewSession stores a session that goes on.
func (s *Sessions) renewSession(ctx context.Context, session *Session) (*http.Cookie, error) {
	if err := s.Participants.keepClients(ctx, session.SID); err != nil {
		return nil, err
	}
	return s.putSession(ctx, session)
}

// addSession stores a new session, and ends the one that it takes the place of.
func (s *Sessions) addSession(ctx context.Context, session, earlier *Session) (*http.Cookie, error) {
	cookie, err := s.putSession(ctx, session)
	if err != nil {
		return nil, err
	}
	if earlier != nil {
		audit.NoteSessionEndReason(ctx, "somebody signed in in its place in the same browser")
		if err := s.End(ctx, earlier); err != nil {
			return nil, errors.Join(err, s.deleteSession(context.WithoutCancel(ctx), session.SID))
		}
	}
	s.keepSession(ctx, session)
	return cookie, nil
}

// maxUserAgent bounds what is kept of a User-Agent header, in bytes.
const maxUserAgent = 200

// putSession stores a session under a new secret, and returns the cookie that holds it.
func (s *Sessions) putSession(ctx context.Context, session *Session) (*http.Cookie, error) {
	secret := oauth2.RandomToken()
	session.Secret = sha256.Sum256([]byte(secret))
	value, err := json.Marshal(session)
	if err != nil {
		return nil, err
	}
	if err := s.reserveCutoff(ctx, session.SID); err != nil {
		return nil, err
	}
	if err := s.Durable.Put(ctx, Key(session.SID), value, s.Lifetime); err != nil {
		return nil, err
	}
	return browser.NewCookie(browser.SessionCookie, session.SID+"."+secret), nil
}
