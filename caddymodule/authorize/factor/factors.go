package factor

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/go-webauthn/webauthn/webauthn"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// Factors knows and checks the factors of local users.
type Factors struct {
	Directory  *people.Directory // whose factors they are
	Enrolments *Enrolments       // what they enrolled
	OTP        *people.OTP       // checks codes of authenticator apps
	Passkeys   *Passkeys         // nil if the issuer's host cannot have any
	Logger     *slog.Logger      // gets failures to release a code
}

// Held are the factors that a person has beside their password.
type Held struct {
	Enrolment
	Configured bool // an authenticator app that the configuration says
}

// Any reports whether the person has any.
func (h *Held) Any() bool { return h.Configured || h.any() }

// HasApp reports whether the person has an authenticator app.
func (h *Held) HasApp() bool { return h.Configured || h.App != nil }

// Local reports whether a person can have factors here.
func (fs *Factors) Local(user *people.User) bool { return fs.Directory.User(user.ID) != nil }

// Of returns the factors of a person: none if they are not a local user.
func (fs *Factors) Of(ctx context.Context, user *people.User) (*Held, error) {
	if !fs.Local(user) {
		return new(Held), nil
	}
	e, err := fs.Enrolments.Load(ctx, user.ID)
	if err != nil {
		return nil, err
	}
	return &Held{*e, user.TOTPSecret != ""}, nil
}

// Lacking reports whether a session must prove a second factor before it gives anything more: the person has set one up
// since, in another session.
func (h *Held) Lacking(by By) bool { return h.Any() && h.Session != by.SID && !by.MultiFactor }

// Lacking is [Held.Lacking] of a person.
func (fs *Factors) Lacking(ctx context.Context, user *people.User, by By) (bool, error) {
	held, err := fs.Of(ctx, user)
	return err == nil && held.Lacking(by), err
}

// Binding is a hash that changes with a person's password and with their factors, but not with the use of one.
func (fs *Factors) Binding(ctx context.Context, user *people.User) (string, error) {
	held, err := fs.Of(ctx, user)
	if err != nil {
		return "", err
	}
	credential := user.Credential()
	h := sha256.New()
	h.Write(credential[:])
	if held.App != nil {
		h.Write([]byte("app\x00" + held.App.Secret + "\x00"))
	}
	for _, p := range held.Passkeys {
		h.Write([]byte("passkey\x00" + base64.RawURLEncoding.EncodeToString(p.Credential.ID) + "\x00"))
	}
	return string(h.Sum(nil)), nil
}

// lifetime is that of what is enrolled, from its latest change or use.
const lifetime = 20 * 365 * 24 * time.Hour

// Enrolment is what a person enrolled by themself, as stored.
type Enrolment struct {
	App      *App      `json:"app,omitempty"`      // their authenticator app
	Recovery [][]byte  `json:"recovery,omitempty"` // hashes of the unused recovery codes
	Handle   []byte    `json:"handle,omitempty"`   // the user handle of all their passkeys
	Passkeys []Passkey `json:"passkeys,omitempty"` // oldest first
	Session  string    `json:"session,omitempty"`  // the sid in which the first factor was set up

	Owner oauth2.Generation `json:"owner,omitempty"` // whose it is, of those that had the name
}

// App is a person's authenticator app (RFC 6238).
type App struct {
	Secret string    `json:"secret"` // its key, as [people.User.TOTPSecret]
	Added  time.Time `json:"added"`  // when it was enrolled
}

// Passkey is a passkey of a person.
type Passkey struct {
	Credential webauthn.Credential `json:"credential"` // without its attestation, which nobody asked for
	Name       string              `json:"name"`       // as the person calls it
	Added      time.Time           `json:"added"`      // when it was enrolled
	Used       time.Time           `json:"used"`       // when it was last used; zero if never
}

// The refusals to change what a person has enrolled.
var (
	ErrEnrolled   = &oauth2.Error{Code: "access_denied", Description: "there is one already", Status: http.StatusConflict}
	ErrConfigured = &oauth2.Error{Code: "access_denied", Description: "it is in the configuration", Status: http.StatusConflict}
	ErrTooMany    = &oauth2.Error{Code: "access_denied", Description: "there are too many", Status: http.StatusConflict}
	ErrUnknown    = &oauth2.Error{Code: "access_denied", Description: "there is no such factor", Status: http.StatusNotFound}
)

// any reports whether the person has enrolled a factor. Recovery codes alone are none.
func (e *Enrolment) any() bool { return e.App != nil || len(e.Passkeys) > 0 }

// Enrolments stores what people enrolled, sealed, so that who can write to the store can
// neither read their keys nor add one.
type Enrolments struct {
	Durable store.Store     // holds them
	Keys    keyring.Storing // seal them

	// Generation says who has a name now.
	Generation func(user string) oauth2.Generation
}

func enrolmentKey(user string) string { return store.Key("factors", user) }

// Load returns what a person enrolled, which may be nothing.
func (es *Enrolments) Load(ctx context.Context, user string) (*Enrolment, error) {
	stored, err := es.Durable.Get(ctx, enrolmentKey(user))
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, fmt.Errorf("reading what %q enrolled: %w", user, err)
	}
	return es.open(ctx, user, stored)
}

func (es *Enrolments) open(ctx context.Context, user string, stored []byte) (*Enrolment, error) {
	if stored == nil {
		return new(Enrolment), nil
	}
	text, err := es.Keys.UnsealStored(ctx, string(stored), enrolmentKey(user))
	var e *Enrolment
	if err == nil {
		e, err = store.FromJSON[Enrolment]([]byte(text))
	}
	if err != nil {
		return nil, fmt.Errorf("reading what %q enrolled: %w", user, err)
	}
	return es.owned(user, e)
}

// owned returns what was read, if it is of who has the name here. A later owner is not known here yet.
func (es *Enrolments) owned(user string, e *Enrolment) (*Enrolment, error) {
	now := es.Generation(user)
	switch {
	case !e.Owner.IsAnother(now):
		return e, nil
	case e.Owner > now:
		return nil, fmt.Errorf("%w: %q has become another person's name", store.ErrUnavailable, user)
	}
	return new(Enrolment), nil
}

// change changes what a person enrolled, unless do returns an error. After a concurrent
// change, do runs again.
func (es *Enrolments) change(ctx context.Context, user string, do func(*Enrolment) error) error {
	return store.Alter(ctx, es.Durable, enrolmentKey(user), lifetime, func(stored []byte) ([]byte, error) {
		e, err := es.open(ctx, user, stored)
		if err == nil {
			e.Owner = es.Generation(user)
			err = do(e)
		}
		if err != nil {
			return nil, err
		}
		text, err := store.ToJSON(e)
		if err != nil {
			return nil, err
		}
		sealed, err := es.Keys.SealStored(ctx, string(text), enrolmentKey(user))
		return []byte(sealed), err
	})
}

// By is the session in which a person changes what they enrolled.
type By struct {
	SID         string // of the session
	MultiFactor bool   // they signed in to it with a second factor
}

// BySession is By of a session and how its person signed in (acr).
func BySession(sid, acr string) By {
	return By{SID: sid, MultiFactor: oauth2.MeetsACR(acr, oauth2.ACRMultiFactor)}
}

// ErrUnproved refuses a change in a session without a second factor, of who has one.
var ErrUnproved = &oauth2.Error{Code: "access_denied", Description: "the session lacks the second factor", Status: http.StatusForbidden}

// changeBy is change in a session. A person who has a second factor must have proved one there, also if it was enrolled
// a moment ago elsewhere: else whoever knows the password alone could add their own beside it.
func (es *Enrolments) changeBy(ctx context.Context, user *people.User, by By, do func(*Enrolment) error) error {
	return es.change(ctx, user.ID, func(e *Enrolment) error {
		if !by.MultiFactor && (e.any() || user.TOTPSecret != "") {
			return ErrUnproved
		}
		if !e.any() {
			e.Session = by.SID
		}
		return do(e)
	})
}

// Reset removes all that a person enrolled, and reports whether there was anything. It does
// not have to read it: the key that sealed it may be lost.
func (es *Enrolments) Reset(ctx context.Context, user string) (bool, error) {
	_, err := es.Durable.Take(ctx, enrolmentKey(user))
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// find returns the index of a passkey by the id of its credential, or -1.
func (e *Enrolment) find(id []byte) int {
	return slices.IndexFunc(e.Passkeys, func(p Passkey) bool { return string(p.Credential.ID) == string(id) })
}
