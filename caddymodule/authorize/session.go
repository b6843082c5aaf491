package authorize

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"time"
)

// The __Host- prefix makes the browser refuse these cookies from any other host
// or over plain HTTP (RFC 6265bis §4.1.3.2).
const (
	sessionCookie = "__Host-fhir-session"
	browserCookie = "__Host-fhir-browser"
)

// signedIn is a person who signed in, as a session remembers it.
type signedIn struct {
	user *User
	at   time.Time
}

// storedSession is the form of a session in the [Store].
type storedSession struct {
	User       string            `json:"user"`
	Credential [sha256.Size]byte `json:"credential"`
	At         time.Time         `json:"at"`
}

// storeKey names an entry without holding the secret that leads to it.
func storeKey(kind, secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return kind + ":" + base64.RawURLEncoding.EncodeToString(sum[:])
}

// session returns who is signed in at this browser, or nil. A session ends with
// its user's configuration: who was removed, or has another password by now,
// must sign in again.
func (s *Server) session(r *http.Request) (*signedIn, error) {
	cookie, err := r.Cookie(sessionCookie)
	if err != nil {
		return nil, nil
	}
	value, err := s.store.Get(r.Context(), storeKey("session", cookie.Value))
	if errors.Is(err, ErrNotFound) {
		return nil, nil
	}
	var stored storedSession
	if err == nil {
		err = json.Unmarshal(value, &stored)
	}
	if err != nil {
		return nil, err
	}
	user := s.directory.users[stored.User]
	if user == nil || user.credential() != stored.Credential {
		return nil, nil
	}
	return &signedIn{user: user, at: stored.At}, nil
}

// startSession signs a user in at this browser under a new session id. The old
// one ends, so that one fixed beforehand by somebody else leads nowhere.
func (s *Server) startSession(w http.ResponseWriter, r *http.Request, user *User) (*signedIn, error) {
	if old, err := r.Cookie(sessionCookie); err == nil {
		if err := s.store.Delete(r.Context(), storeKey("session", old.Value)); err != nil {
			return nil, err
		}
	}
	id, now := randomToken(), time.Now().Truncate(time.Second)
	if err := s.saveSession(r.Context(), id, storedSession{user.ID, user.credential(), now}); err != nil {
		return nil, err
	}
	setCookie(w, sessionCookie, id)
	return &signedIn{user: user, at: now}, nil
}

func (s *Server) saveSession(ctx context.Context, id string, session storedSession) error {
	value, err := json.Marshal(session)
	if err != nil {
		return err
	}
	return s.store.Put(ctx, storeKey("session", id), value, s.sessionLifetime)
}

// browser returns the id that binds sealed requests to this browser, and gives
// it one if it has none.
func (s *Server) browser(w http.ResponseWriter, r *http.Request) string {
	if cookie, err := r.Cookie(browserCookie); err == nil && cookie.Value != "" {
		return cookie.Value
	}
	id := randomToken()
	setCookie(w, browserCookie, id)
	return id
}

func setCookie(w http.ResponseWriter, name, value string) {
	http.SetCookie(w, &http.Cookie{
		Name: name, Value: value, Path: "/",
		Secure: true, HttpOnly: true, SameSite: http.SameSiteLaxMode,
	})
}
