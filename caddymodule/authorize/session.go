package authorize

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// signedIn is a person who signed in, as a session remembers it.
type signedIn struct {
	user *User
	at   time.Time
	by   string // the identity provider's key; "" where the password was checked here
	sid  string // names the session to clients (OpenID Connect Back-Channel Logout §2.1)

	subject string   // at that provider
	amr     []string // how they proved who they are (RFC 8176)
}

// way is how the person signed in, in the words of a client's list.
func (s *signedIn) way() string {
	if s.by == "" {
		return Local
	}
	return s.by
}

// storedSession is the form of a session in the durable [store.Store]: a restart signs nobody
// out. It is written when somebody signs in, and not when they go on.
type storedSession struct {
	// Secret is the SHA-256 of what the cookie holds beside the session's id.
	Secret [sha256.Size]byte `json:"secret"`

	User       string            `json:"user"`
	Credential [sha256.Size]byte `json:"credential"`
	Began      time.Time         `json:"began"`
	At         time.Time         `json:"at"` // of the latest sign-in, here or at the provider
	Provider   string            `json:"provider,omitempty"`
	AMR        []string          `json:"amr,omitempty"`
	Address    string            `json:"address,omitempty"`
	UserAgent  string            `json:"user_agent,omitempty"`

	// UpstreamSubject and UpstreamSession are the sub and sid of the provider's ID
	// token, by which it says that the person signed out there (upstreamlogout.go).
	UpstreamSubject string `json:"upstream_sub,omitempty"`
	UpstreamSession string `json:"upstream_sid,omitempty"`

	// UpstreamIDToken is there where the provider's keep_upstream_token asks.
	UpstreamIDToken string `json:"upstream_id_token,omitempty"`

	sid string // that of signedIn
}

// sessionKey leads to the session with a sid. The sid is public; what signs in is
// the secret in the cookie.
func sessionKey(sid string) string { return "session:" + sid }

// storeKey names an entry without holding the secret that leads to it.
func storeKey(kind, secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return kind + ":" + base64.RawURLEncoding.EncodeToString(sum[:])
}

// sessions are the sign-ins that last.
type sessions struct {
	durable      store.Store
	store        store.Store // keeps room for what a session's end must put there
	lifetime     time.Duration
	accounts     *accounts
	clients      *registry
	devices      *devices
	revocations  *revocations
	participants *participants
	notifier     *notifier
	trail        *recorder
	logger       *slog.Logger
}

// session returns who is signed in at this browser, or nil. Whether the way it
// began will do for a client is for offer.serves to say.
func (s *sessions) session(r *http.Request) (*signedIn, error) {
	stored, err := s.storedSession(r)
	if stored == nil || err != nil {
		return nil, err
	}
	user, err := s.sessionUser(r.Context(), stored)
	if user == nil || err != nil {
		return nil, err
	}
	noteProven(r.Context())
	return stored.signedIn(user), nil
}

func (s *storedSession) signedIn(user *User) *signedIn {
	return &signedIn{user: user, at: s.At, by: s.Provider, sid: s.sid, subject: s.UpstreamSubject, amr: s.AMR}
}

// sessionUser is whose session it is, or nil. A session ends with its user's
// configuration: who was removed or disabled, has another password by now, or came by
// a link that there is no more, must sign in again.
func (s *sessions) sessionUser(ctx context.Context, stored *storedSession) (*User, error) {
	user, err := s.accounts.account(ctx, stored.User)
	if user == nil || err != nil || user.credential() != stored.Credential {
		return nil, err
	}
	unlinked, err := s.accounts.unlinked(ctx, user, stored.Provider, stored.UpstreamSubject)
	if unlinked || err != nil {
		return nil, err
	}
	return user, nil
}

// storedSession returns the session of this browser, or nil.
func (s *sessions) storedSession(r *http.Request) (*storedSession, error) {
	cookie, err := r.Cookie(sessionCookie)
	if err != nil {
		return nil, nil
	}
	sid, secret, _ := strings.Cut(cookie.Value, ".")
	stored, err := s.readSession(r.Context(), sid)
	if stored == nil || err != nil {
		return nil, err
	}
	if sum := sha256.Sum256([]byte(secret)); subtle.ConstantTimeCompare(sum[:], stored.Secret[:]) != 1 {
		return nil, nil
	}
	return stored, nil
}

// readSession returns the session with a sid, or nil.
func (s *sessions) readSession(ctx context.Context, sid string) (*storedSession, error) {
	value, err := s.durable.Get(ctx, sessionKey(sid))
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	stored := &storedSession{sid: sid}
	if err == nil {
		err = json.Unmarshal(value, stored)
	}
	if err != nil {
		return nil, fmt.Errorf("reading a session: %w", err)
	}
	return stored, nil
}

// startSession signs a user in at this browser under a new secret, so that one
// that somebody fixed or read before leads nowhere. A user who signs in again
// goes on with the same session: what clients got in it stays with it. Another
// one's session ends.
func (s *sessions) startSession(w http.ResponseWriter, r *http.Request, user *User, session storedSession) (*signedIn, error) {
	earlier, err := s.storedSession(r)
	if err != nil {
		return nil, err
	}
	session.User, session.Credential = user.ID, user.credential()
	session.Address, session.UserAgent = addressOf(r.Context()), r.UserAgent()[:min(len(r.UserAgent()), maxUserAgent)]
	now := time.Now().Truncate(time.Second)
	if session.At.IsZero() || session.At.After(now) {
		session.At = now
	}
	session.sid, session.Began = oauth2.RandomToken(), now
	device, err := s.devices.deviceCookie(r, user.ID)
	if err != nil {
		return nil, err
	}
	var cookie *http.Cookie
	if earlier != nil && earlier.User == user.ID && earlier.Credential == session.Credential {
		session.sid, session.Began = earlier.sid, earlier.Began
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
func (s *sessions) renewSession(ctx context.Context, session *storedSession) (*http.Cookie, error) {
	if err := s.participants.keepClients(ctx, session.sid); err != nil {
		return nil, err
	}
	return s.putSession(ctx, session)
}

// addSession stores a new session, and ends the one that it takes the place of.
func (s *sessions) addSession(ctx context.Context, session, earlier *storedSession) (*http.Cookie, error) {
	cookie, err := s.putSession(ctx, session)
	if err != nil {
		return nil, err
	}
	if earlier != nil {
		noteEnding(ctx, "somebody signed in in its place in the same browser")
		if err := s.endSession(ctx, earlier); err != nil {
			return nil, errors.Join(err, s.deleteSession(context.WithoutCancel(ctx), session.sid))
		}
	}
	s.keepSession(ctx, session)
	return cookie, nil
}

// maxUserAgent bounds what is kept of a User-Agent header, in bytes.
const maxUserAgent = 200

// putSession stores a session under a new secret, and returns the cookie that holds it.
func (s *sessions) putSession(ctx context.Context, session *storedSession) (*http.Cookie, error) {
	secret := oauth2.RandomToken()
	session.Secret = sha256.Sum256([]byte(secret))
	value, err := json.Marshal(session)
	if err != nil {
		return nil, err
	}
	if err := s.reserveCutoff(ctx, session.sid); err != nil {
		return nil, err
	}
	if err := s.durable.Put(ctx, sessionKey(session.sid), value, s.lifetime); err != nil {
		return nil, err
	}
	return newCookie(sessionCookie, session.sid+"."+secret), nil
}
