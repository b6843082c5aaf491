package session

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
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
	// token, by which its logout tokens name the session (backchannellogout.go).
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
