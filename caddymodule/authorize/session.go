package authorize

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"
)

// signedIn is a person who signed in, as a session remembers it.
type signedIn struct {
	user *User
	at   time.Time
	by   string // the identity provider's key; "" where the password was checked here
	sid  string // names the session to clients (OpenID Connect Back-Channel Logout §2.1)
}

// way is how the person signed in, in the words of a client's list.
func (s *signedIn) way() string {
	if s.by == "" {
		return Local
	}
	return s.by
}

// storedSession is the form of a session in the [Store].
type storedSession struct {
	User       string            `json:"user"`
	Credential [sha256.Size]byte `json:"credential"`
	At         time.Time         `json:"at"` // of the sign-in, here or at the provider
	Provider   string            `json:"provider,omitempty"`

	// UpstreamIDToken is there where the provider's keep_upstream_token asks.
	UpstreamIDToken string `json:"upstream_id_token,omitempty"`

	sid string // that of signedIn
}

// sessionID is the sid of the session behind a cookie. It is public: it leads to
// the entry in the store, not back to the cookie.
func sessionID(cookie string) string {
	return strings.TrimPrefix(storeKey("session", cookie), "session:")
}

// storeKey names an entry without holding the secret that leads to it.
func storeKey(kind, secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return kind + ":" + base64.RawURLEncoding.EncodeToString(sum[:])
}

// session returns who is signed in at this browser, or nil. A session ends with
// its user's configuration: who was removed or disabled, or has another password
// by now, must sign in again. Whether the way it began will do for a client is
// for offer.serves to say.
func (s *Server) session(r *http.Request) (*signedIn, error) {
	stored, err := s.storedSession(r)
	if stored == nil || err != nil {
		return nil, err
	}
	user, err := s.account(r.Context(), stored.User)
	if user == nil || err != nil {
		return nil, err
	}
	if user.credential() != stored.Credential {
		return nil, nil
	}
	return &signedIn{user: user, at: stored.At, by: stored.Provider, sid: stored.sid}, nil
}

func (s *Server) storedSession(r *http.Request) (*storedSession, error) {
	cookie, err := r.Cookie(sessionCookie)
	if err != nil {
		return nil, nil
	}
	value, err := s.store.Get(r.Context(), storeKey("session", cookie.Value))
	if errors.Is(err, ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	stored := &storedSession{sid: sessionID(cookie.Value)}
	return stored, json.Unmarshal(value, stored)
}

// startSession signs a user in at this browser under a new session id. The old
// one ends, so that one fixed beforehand by somebody else leads nowhere.
func (s *Server) startSession(w http.ResponseWriter, r *http.Request, user *User, session storedSession) (*signedIn, error) {
	if err := s.endSession(r); err != nil {
		return nil, err
	}
	session.User, session.Credential = user.ID, user.credential()
	if now := time.Now().Truncate(time.Second); session.At.IsZero() || session.At.After(now) {
		session.At = now
	}
	value, err := json.Marshal(session)
	if err != nil {
		return nil, err
	}
	id := randomToken()
	if err := s.store.Put(r.Context(), storeKey("session", id), value, s.sessionLifetime); err != nil {
		return nil, err
	}
	http.SetCookie(w, newCookie(sessionCookie, id))
	return &signedIn{user: user, at: session.At, by: session.Provider, sid: sessionID(id)}, nil
}

// endSession forgets the session of this browser, if it has one.
func (s *Server) endSession(r *http.Request) error {
	cookie, err := r.Cookie(sessionCookie)
	if err != nil {
		return nil
	}
	return s.store.Delete(r.Context(), storeKey("session", cookie.Value))
}

// browser returns the id that binds sealed requests to this browser, and gives
// it one if it has none.
func (s *Server) browser(w http.ResponseWriter, r *http.Request) string {
	if cookie, err := r.Cookie(browserCookie); err == nil && cookie.Value != "" {
		return cookie.Value
	}
	id := randomToken()
	http.SetCookie(w, newCookie(browserCookie, id))
	return id
}
