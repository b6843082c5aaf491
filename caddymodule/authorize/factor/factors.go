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

// Factors manages and verifies the factors of local users.
type Factors struct {
	Directory  *people.Directory // local users
	Enrolments *Enrolments       // enrolled factors
	OTP        *people.OTP       // verification of authenticator app codes
	Passkeys   *Passkeys         // nil if the issuer's host does not permit passkeys
	Logger     *slog.Logger      // log for failures to release a code
}

// EnrolledFactors contains the second factors of a user.
type EnrolledFactors struct {
	Enrolment
	Configured bool // authenticator app from the configuration
}

// Any reports whether the user has a second factor.
func (h *EnrolledFactors) Any() bool { return h.Configured || h.any() }

// HasApp reports whether the user has an authenticator app.
func (h *EnrolledFactors) HasApp() bool { return h.Configured || h.App != nil }

// Local reports whether the gateway manages a user's factors.
func (fs *Factors) Local(user *people.User) bool { return fs.Directory.User(user.ID) != nil }

// Load returns the factors of a user: none for federated users.
func (fs *Factors) Load(ctx context.Context, user *people.User) (*EnrolledFactors, error) {
	if !fs.Local(user) {
		return new(EnrolledFactors), nil
	}
	e, err := fs.Enrolments.Load(ctx, user.ID)
	if err != nil {
		return nil, err
	}
	return &EnrolledFactors{*e, user.TOTPSecret != ""}, nil
}

// NeedsProof reports whether a session requires a second factor, because the user has since enrolled
// one in another session.
func (h *EnrolledFactors) NeedsProof(by SessionContext) bool {
	return h.Any() && h.Session != by.SID && !by.MultiFactor
}

// NeedsProof is like [EnrolledFactors.NeedsProof], but for a user.
func (fs *Factors) NeedsProof(ctx context.Context, user *people.User, by SessionContext) (bool, error) {
	held, err := fs.Load(ctx, user)
	return err == nil && held.NeedsProof(by), err
}

// Binding returns a hash that changes with a user's password and factors, but not with their use.
func (fs *Factors) Binding(ctx context.Context, user *people.User) (string, error) {
	held, err := fs.Load(ctx, user)
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

// lifetime is the lifetime of an enrolment after its latest change or use.
const lifetime = 20 * 365 * 24 * time.Hour

// Enrolment contains the enrolled factors of a user, as stored.
type Enrolment struct {
	App      *App      `json:"app,omitempty"`      // authenticator app
	Recovery [][]byte  `json:"recovery,omitempty"` // hashes of the unused recovery codes
	Handle   []byte    `json:"handle,omitempty"`   // user handle of all passkeys
	Passkeys []Passkey `json:"passkeys,omitempty"` // oldest first
	Session  string    `json:"session,omitempty"`  // sid of the session in which the first factor was enrolled

	Owner oauth2.Generation `json:"owner,omitempty"` // generation of the user who enrolled
}

// App is an enrolled authenticator app (RFC 6238).
type App struct {
	Secret string    `json:"secret"` // key, as in [people.User].TOTPSecret
	Added  time.Time `json:"added"`  // enrollment time
}

// Passkey is an enrolled passkey.
type Passkey struct {
	Credential webauthn.Credential `json:"credential"` // without attestation, which is not requested
	Name       string              `json:"name"`       // name chosen by the user
	Added      time.Time           `json:"added"`      // enrollment time
	Used       time.Time           `json:"used"`       // last use; zero for never
}

// Errors for changes of enrolments.
var (
	ErrEnrolled   = &oauth2.Error{Code: "access_denied", Description: "there is one already", Status: http.StatusConflict}
	ErrConfigured = &oauth2.Error{Code: "access_denied", Description: "it is in the configuration", Status: http.StatusConflict}
	ErrTooMany    = &oauth2.Error{Code: "access_denied", Description: "there are too many", Status: http.StatusConflict}
	ErrUnknown    = &oauth2.Error{Code: "access_denied", Description: "there is no such factor", Status: http.StatusNotFound}
)

// any reports whether a factor is enrolled. Recovery codes alone do not count.
func (e *Enrolment) any() bool { return e.App != nil || len(e.Passkeys) > 0 }

// Enrolments stores enrolled factors sealed, so that write access to the store permits neither
// reading keys nor adding factors.
type Enrolments struct {
	Durable store.Store     // store for enrolments
	Keys    keyring.Storing // sealing keys

	// Generation returns the current generation of a user name.
	Generation func(user string) oauth2.Generation
}

func enrolmentKey(user string) string { return store.Key("factors", user) }

// Load returns the enrolment of a user, possibly empty.
func (es *Enrolments) Load(ctx context.Context, user string) (*Enrolment, error) {
	stored, err := es.Durable.Get(ctx, enrolmentKey(user))
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, fmt.Errorf("reading the factors of %q: %w", user, err)
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
		return nil, fmt.Errorf("reading the factors of %q: %w", user, err)
	}
	return es.owned(user, e)
}

// owned returns the enrolment if it belongs to the current user of the name. It returns an error if it belongs to a later user
// not yet known at this gateway.
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

// change modifies a user's enrolment unless do returns an error. After a concurrent change, do runs again.
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

// SessionContext describes the session in which a user changes factors.
type SessionContext struct {
	SID         string // sid of the session
	MultiFactor bool   // whether the session was started with a second factor
}

// NewSessionContext returns the context of a session with the given acr.
func NewSessionContext(sid, acr string) SessionContext {
	return SessionContext{SID: sid, MultiFactor: oauth2.MeetsACR(acr, oauth2.ACRMultiFactor)}
}

// ErrUnproved rejects changes in a session without the user's second factor.
var ErrUnproved = &oauth2.Error{Code: "access_denied", Description: "the session lacks the second factor", Status: http.StatusForbidden}

// changeBy is like change, but in a session. A user with a second factor must have proved it in the session, even if it
// was enrolled just now in another session. Otherwise an attacker with the password could add a factor.
func (es *Enrolments) changeBy(ctx context.Context, user *people.User, by SessionContext, do func(*Enrolment) error) error {
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

// Reset removes all enrolled factors of a user and reports whether any existed. It works even if
// the sealing key was lost.
func (es *Enrolments) Reset(ctx context.Context, user string) (bool, error) {
	_, err := es.Durable.Take(ctx, enrolmentKey(user))
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// find returns the index of a passkey by credential id, or -1.
func (e *Enrolment) find(id []byte) int {
	return slices.IndexFunc(e.Passkeys, func(p Passkey) bool { return string(p.Credential.ID) == string(id) })
}
