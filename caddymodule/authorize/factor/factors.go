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
	Directory   *people.Directory // local users
	Enrollments *Enrollments      // store of enrolled factors
	OTP         *people.OTP       // verifies codes of authenticator apps
	Passkeys    *Passkeys         // nil if the issuer's host does not permit passkeys
	Logger      *slog.Logger      // log for codes that could not be made usable again
}

// EnrolledFactors contains the second factors of a user.
type EnrolledFactors struct {
	Enrollment
	HasConfiguredApp bool // whether an authenticator app is set in the configuration
}

// HasAny reports whether the user has a second factor.
func (h *EnrolledFactors) HasAny() bool { return h.HasConfiguredApp || h.hasFactor() }

// HasApp reports whether the user has an authenticator app, configured or enrolled.
func (h *EnrolledFactors) HasApp() bool { return h.HasConfiguredApp || h.App != nil }

// ManagesFactorsOf reports whether the gateway manages a user's factors, i.e. whether the user is a local user.
func (fs *Factors) ManagesFactorsOf(user *people.User) bool { return fs.Directory.User(user.ID) != nil }

// Load returns the factors of a user. Users of identity providers have none here.
func (fs *Factors) Load(ctx context.Context, user *people.User) (*EnrolledFactors, error) {
	if !fs.ManagesFactorsOf(user) {
		return new(EnrolledFactors), nil
	}
	e, err := fs.Enrollments.Load(ctx, user.ID)
	if err != nil {
		return nil, err
	}
	return &EnrolledFactors{*e, user.TOTPSecret != ""}, nil
}

// RequiresSecondFactor reports whether the user must present a second factor before the session continues. This is the case if
// the user has enrolled a factor since, in another session.
func (h *EnrolledFactors) RequiresSecondFactor(by SessionContext) bool {
	return h.HasAny() && h.FirstSID != by.SID && !by.IsMultiFactor
}

// RequiresSecondFactor loads the factors of a user and calls [EnrolledFactors.RequiresSecondFactor].
func (fs *Factors) RequiresSecondFactor(ctx context.Context, user *people.User, by SessionContext) (bool, error) {
	enrolled, err := fs.Load(ctx, user)
	return err == nil && enrolled.RequiresSecondFactor(by), err
}

// BindingHash returns a hash that changes when a user's password or factors change, but not when they are used.
func (fs *Factors) BindingHash(ctx context.Context, user *people.User) (string, error) {
	enrolled, err := fs.Load(ctx, user)
	if err != nil {
		return "", err
	}
	credential := user.Credential()
	h := sha256.New()
	h.Write(credential[:])
	if enrolled.App != nil {
		h.Write([]byte("app\x00" + enrolled.App.Secret + "\x00"))
	}
	for _, p := range enrolled.Passkeys {
		h.Write([]byte("passkey\x00" + base64.RawURLEncoding.EncodeToString(p.Credential.ID) + "\x00"))
	}
	return string(h.Sum(nil)), nil
}

// enrollmentLifetime is the lifetime of an enrollment after it was last changed or used.
const enrollmentLifetime = 20 * 365 * 24 * time.Hour

// Enrollment contains the enrolled factors of a user, as stored.
type Enrollment struct {
	App                *App      `json:"app,omitempty"`      // authenticator app
	RecoveryCodeHashes [][]byte  `json:"recovery,omitempty"` // hashes of the unused recovery codes
	UserHandle         []byte    `json:"handle,omitempty"`   // WebAuthn user handle, the same for all passkeys of the user
	Passkeys           []Passkey `json:"passkeys,omitempty"` // oldest first
	FirstSID           string    `json:"session,omitempty"`  // sid of the session in which the first factor was enrolled

	OwnerGeneration oauth2.Generation `json:"owner,omitempty"` // generation of the user who enrolled the factors
}

// App is an enrolled authenticator app (RFC 6238).
type App struct {
	Secret     string    `json:"secret"` // TOTP key in base32, as in [people.User].TOTPSecret
	EnrolledAt time.Time `json:"added"`  // enrollment time
}

// Passkey is an enrolled passkey.
type Passkey struct {
	Credential webauthn.Credential `json:"credential"` // contains no attestation, because none is requested
	Name       string              `json:"name"`       // name chosen by the user
	EnrolledAt time.Time           `json:"added"`      // enrollment time
	LastUsedAt time.Time           `json:"used"`       // time of the last use; zero if never used
}

// Errors of changes to enrollments.
var (
	ErrAlreadyEnrolled = &oauth2.Error{Code: "access_denied", Description: "this factor is already enrolled", Status: http.StatusConflict}
	ErrConfiguredApp   = &oauth2.Error{Code: "access_denied", Description: "the authenticator app is set in the configuration", Status: http.StatusConflict}
	ErrTooManyPasskeys = &oauth2.Error{Code: "access_denied", Description: "maximum number of passkeys reached", Status: http.StatusConflict}
	ErrUnknownFactor   = &oauth2.Error{Code: "access_denied", Description: "factor not found", Status: http.StatusNotFound}
)

// hasFactor reports whether an authenticator app or a passkey is enrolled. Recovery codes are not factors on their own.
func (e *Enrollment) hasFactor() bool { return e.App != nil || len(e.Passkeys) > 0 }

// Enrollments stores enrolled factors, sealed. Someone with access to the store can neither read keys nor add factors.
type Enrollments struct {
	DurableStore store.Store           // store for enrollments
	Keys         keyring.StorageSealer // sealing keys

	// Generation returns the current generation of the user with a name.
	Generation func(user string) oauth2.Generation
}

func enrollmentKey(user string) string { return store.Key("factors", user) }

// Load returns the enrollment of a user. It is empty if no factors are enrolled.
func (es *Enrollments) Load(ctx context.Context, user string) (*Enrollment, error) {
	stored, err := es.DurableStore.Get(ctx, enrollmentKey(user))
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, fmt.Errorf("reading the factors of %q: %w", user, err)
	}
	return es.unseal(ctx, user, stored)
}

func (es *Enrollments) unseal(ctx context.Context, user string, stored []byte) (*Enrollment, error) {
	if stored == nil {
		return new(Enrollment), nil
	}
	text, err := es.Keys.UnsealStored(ctx, string(stored), enrollmentKey(user))
	var e *Enrollment
	if err == nil {
		e, err = store.FromJSON[Enrollment]([]byte(text))
	}
	if err != nil {
		return nil, fmt.Errorf("reading the factors of %q: %w", user, err)
	}
	return es.checkOwner(user, e)
}

// checkOwner returns the enrollment e if it belongs to the current user with the name, and an empty one if it belongs to an
// earlier user. If it belongs to a later user whom this gateway does not know yet, checkOwner returns an error.
func (es *Enrollments) checkOwner(user string, e *Enrollment) (*Enrollment, error) {
	now := es.Generation(user)
	switch {
	case !e.OwnerGeneration.DiffersFrom(now):
		return e, nil
	case e.OwnerGeneration > now:
		return nil, fmt.Errorf("%w: the user name %q now belongs to another person, whom this gateway has not loaded yet", store.ErrUnavailable, user)
	}
	return new(Enrollment), nil
}

// update calls do to modify a user's enrollment and stores the result, unless do fails. It retries after concurrent changes.
func (es *Enrollments) update(ctx context.Context, user string, do func(*Enrollment) error) error {
	return store.UpdateValue(ctx, es.DurableStore, enrollmentKey(user), enrollmentLifetime, func(stored []byte) ([]byte, error) {
		e, err := es.unseal(ctx, user, stored)
		if err == nil {
			e.OwnerGeneration = es.Generation(user)
			err = do(e)
		}
		if err != nil {
			return nil, err
		}
		text, err := store.ToJSON(e)
		if err != nil {
			return nil, err
		}
		sealed, err := es.Keys.SealStored(ctx, string(text), enrollmentKey(user))
		return []byte(sealed), err
	})
}

// SessionContext describes the session in which a user changes factors.
type SessionContext struct {
	SID           string // sid of the session
	IsMultiFactor bool   // whether the session was started with a second factor
}

// NewSessionContext returns the context of a session with the given acr.
func NewSessionContext(sid, acr string) SessionContext {
	return SessionContext{SID: sid, IsMultiFactor: oauth2.MeetsACR(acr, oauth2.ACRMultiFactor)}
}

// ErrSecondFactorRequired is the error for changes in a session in which the user has not presented the required second factor.
var ErrSecondFactorRequired = &oauth2.Error{Code: "access_denied", Description: "this change requires a sign-in with a second factor", Status: http.StatusForbidden}

// updateInSession is like update, but checks the session. If the user has a second factor, the sign-in to this session must
// have included one, even if it was enrolled just now. Otherwise, an attacker who knows the password could add a factor.
func (es *Enrollments) updateInSession(ctx context.Context, user *people.User, by SessionContext, do func(*Enrollment) error) error {
	return es.update(ctx, user.ID, func(e *Enrollment) error {
		if !by.IsMultiFactor && (e.hasFactor() || user.TOTPSecret != "") {
			return ErrSecondFactorRequired
		}
		if !e.hasFactor() {
			e.FirstSID = by.SID
		}
		return do(e)
	})
}

// Reset removes all enrolled factors of a user and reports whether any existed. It does not need the sealing key, which may be
// lost.
func (es *Enrollments) Reset(ctx context.Context, user string) (bool, error) {
	_, err := es.DurableStore.Take(ctx, enrollmentKey(user))
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// passkeyIndex returns the index of the passkey with a credential id, or -1.
func (e *Enrollment) passkeyIndex(id []byte) int {
	return slices.IndexFunc(e.Passkeys, func(p Passkey) bool { return string(p.Credential.ID) == string(id) })
}
