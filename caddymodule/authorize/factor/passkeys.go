package factor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math/big"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-webauthn/webauthn/protocol"
	"github.com/go-webauthn/webauthn/protocol/webauthncose"
	"github.com/go-webauthn/webauthn/webauthn"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/browser"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// maxPasskeys is the maximum number of passkeys per user.
const maxPasskeys = 20

// Passkeys enrolls and verifies passkeys.
type Passkeys struct {
	webAuthn           *webauthn.WebAuthn
	origin             string // origin of the pages, in lower case
	enrollments        *Enrollments
	directory          *people.Directory
	sealer             *browser.Sealer
	answeredChallenges store.Store         // store for answered challenges
	answeredLimit      *store.PerUserLimit // limits the number of answered challenges per user
	anyEnrolled        atomic.Bool         // cached result of [Passkeys.AnyEnrolled]
}

// ErrPasskeyRejected means that the response of a passkey was invalid.
var ErrPasskeyRejected = errors.New("passkey rejected")

// ceremonyLifetime is how long a challenge can be answered.
const ceremonyLifetime = 10 * time.Minute

const (
	answeredLifetime = ceremonyLifetime + time.Minute

	// maxAnsweredChallenges is the maximum number of answered challenges stored per user. An attacker would need the user's
	// passkey to add to them.
	maxAnsweredChallenges = 200
)

// rejectPasskey returns an error that wraps [ErrPasskeyRejected]. The cause is not shown to the user, only logged.
func rejectPasskey(cause error) error {
	return &oauth2.Error{
		Code: "access_denied", Description: ErrPasskeyRejected.Error(), Status: http.StatusForbidden, Err: errors.Join(ErrPasskeyRejected, cause),
	}
}

// NewPasskeys returns the passkeys of an issuer. The issuer's host is the relying party id, and its URL is the origin. If the
// host is an IP address, for which browsers do not support passkeys, NewPasskeys returns nil.
func NewPasskeys(issuer string, enrollments *Enrollments, directory *people.Directory, sealer *browser.Sealer, challenges store.Store) *Passkeys {
	u, err := url.Parse(issuer)
	if err != nil {
		return nil
	}
	web, err := webauthn.New(&webauthn.Config{
		RPID: u.Hostname(), RPDisplayName: u.Hostname(), RPOrigins: []string{issuer},
		AttestationPreference: protocol.PreferNoAttestation,
		AuthenticatorSelection: protocol.AuthenticatorSelection{
			ResidentKey: protocol.ResidentKeyRequirementPreferred, UserVerification: protocol.VerificationPreferred,
		},
	})
	if err != nil {
		return nil
	}
	return &Passkeys{webAuthn: web, origin: strings.ToLower(issuer), enrollments: enrollments, directory: directory, sealer: sealer, answeredChallenges: challenges,
		answeredLimit: store.NewPerUserLimit(maxAnsweredChallenges, answeredLifetime),
	}
}

// webAuthnUser implements [webauthn.User].
type webAuthnUser struct {
	user       *people.User
	enrollment *Enrollment
}

// WebAuthnID returns the user handle.
func (o webAuthnUser) WebAuthnID() []byte { return o.enrollment.UserHandle }

// WebAuthnName returns the sign-in name.
func (o webAuthnUser) WebAuthnName() string { return o.user.ID }

// WebAuthnDisplayName returns the name shown by the authenticator.
func (o webAuthnUser) WebAuthnDisplayName() string { return o.user.Label().Name }

// WebAuthnCredentials returns the user's passkeys.
func (o webAuthnUser) WebAuthnCredentials() []webauthn.Credential {
	credentials := make([]webauthn.Credential, len(o.enrollment.Passkeys))
	for i, p := range o.enrollment.Passkeys {
		credentials[i] = p.Credential
	}
	return credentials
}

// Ceremony is a challenge for a page. The page contains it sealed, so that abandoned challenges use no memory on the server.
type Ceremony struct {
	Options         string // JSON options for navigator.credentials
	SealedChallenge string // sealed challenge, submitted with the response
}

// sealChallenge seals a challenge for this browser and a purpose.
func (ps *Passkeys) sealChallenge(w http.ResponseWriter, r *http.Request, purpose string, options any, session *webauthn.SessionData) (*Ceremony, error) {
	sealed, err := ps.sealer.SealJSON(w, r, "passkey "+purpose, session)
	if err != nil {
		return nil, err
	}
	optionsJSON, err := json.Marshal(options)
	return &Ceremony{Options: string(optionsJSON), SealedChallenge: sealed}, err
}

// unsealChallenge returns a challenge that was sealed by sealChallenge for this browser and the purpose.
func (ps *Passkeys) unsealChallenge(r *http.Request, purpose, sealed string) (session webauthn.SessionData, err error) {
	err = ps.sealer.UnsealJSON(r, "passkey "+purpose, sealed, ceremonyLifetime, rejectPasskey(keyring.ErrUnsealFailed), &session)
	return session, err
}

var errReplayed = errors.New("passkey challenge has already been used")

// consumeChallenge marks a challenge as used. Call it only for verified responses: anyone can send invalid responses, which
// must not fill the store.
func (ps *Passkeys) consumeChallenge(ctx context.Context, user string, session webauthn.SessionData) error {
	key := challengeKey(session)
	err := ps.answeredChallenges.Do(ctx, append(ps.answeredLimit.Record(user, key), &store.Call{Op: store.Add, Key: key, TTL: answeredLifetime})...)
	if errors.Is(err, store.ErrExists) {
		return rejectPasskey(errReplayed)
	}
	return err
}

func challengeKey(session webauthn.SessionData) string {
	return store.Key("passkey-challenge", session.Challenge)
}

// releaseChallenge makes a challenge usable again if err is an internal error.
func (ps *Passkeys) releaseChallenge(ctx context.Context, session webauthn.SessionData, err error) {
	if _, rejected := errors.AsType[*oauth2.Error](err); err != nil && !rejected {
		_ = ps.answeredChallenges.Delete(context.WithoutCancel(ctx), challengeKey(session)) // if this fails, the challenge can be used again after the entry expires
	}
}

const signInPurpose = "sign-in"

// BeginSignIn starts a sign-in by passkey alone. The passkey identifies the user, and the device must verify the user.
func (ps *Passkeys) BeginSignIn(w http.ResponseWriter, r *http.Request) (*Ceremony, error) {
	options, session, err := ps.webAuthn.BeginDiscoverableLogin(webauthn.WithUserVerification(protocol.VerificationRequired))
	if err != nil {
		return nil, err
	}
	return ps.sealChallenge(w, r, signInPurpose, options.Response, session)
}

// VerifiedPasskey is the result of verifying a response to a challenge.
type VerifiedPasskey struct {
	User *people.User // owner of the passkey
	AMR  []string     // authentication methods (RFC 8176)
}

// VerifySignIn returns the user who responded to a sign-in challenge. If it returns an error, the result still contains the
// owner of the rejected passkey, if known.
func (ps *Passkeys) VerifySignIn(r *http.Request, sealed, response string) (*VerifiedPasskey, error) {
	session, parsed, err := ps.parseResponse(r, signInPurpose, sealed, response)
	if err != nil {
		return new(VerifiedPasskey), err
	}
	o, err := ps.findByHandle(r.Context(), parsed.Response.UserHandle)
	if err != nil {
		return new(VerifiedPasskey), err
	}
	_, _, err = ps.webAuthn.ValidatePasskeyLogin(func(_, _ []byte) (webauthn.User, error) { return o, nil }, session, parsed)
	return ps.completeVerification(r.Context(), o.user, session, parsed, err)
}

var errUnknownHandle = errors.New("no user found for this passkey user handle")

// findByHandle returns the enabled user with a WebAuthn user handle.
func (ps *Passkeys) findByHandle(ctx context.Context, handle []byte) (webAuthnUser, error) {
	id, err := ps.enrollments.DurableStore.Get(ctx, userHandleKey(handle))
	if errors.Is(err, store.ErrNotFound) {
		err = rejectPasskey(errUnknownHandle)
	}
	if err != nil {
		return webAuthnUser{}, err
	}
	user := ps.directory.User(string(id))
	if user == nil || user.Disabled {
		return webAuthnUser{}, rejectPasskey(errUnknownHandle)
	}
	e, err := ps.enrollments.Load(ctx, user.ID)
	return webAuthnUser{user, e}, err
}

func factorPurpose(user string) string { return "second factor " + user }

// BeginSecondFactor returns a challenge for a user who must present a second factor.
func (ps *Passkeys) BeginSecondFactor(w http.ResponseWriter, r *http.Request, user *people.User) (*Ceremony, error) {
	e, err := ps.enrollments.Load(r.Context(), user.ID)
	if err != nil {
		return nil, err
	}
	options, session, err := ps.webAuthn.BeginLogin(webAuthnUser{user, e})
	if err != nil {
		return nil, err
	}
	return ps.sealChallenge(w, r, factorPurpose(user.ID), options.Response, session)
}

// VerifySecondFactor verifies a user's response to the challenge of [Passkeys.BeginSecondFactor].
func (ps *Passkeys) VerifySecondFactor(r *http.Request, user *people.User, sealed, response string) (*VerifiedPasskey, error) {
	session, parsed, err := ps.parseResponse(r, factorPurpose(user.ID), sealed, response)
	if err != nil {
		return &VerifiedPasskey{User: user}, err
	}
	e, err := ps.enrollments.Load(r.Context(), user.ID)
	if err != nil {
		return &VerifiedPasskey{User: user}, err
	}
	_, err = ps.webAuthn.ValidateLogin(webAuthnUser{user, e}, session, parsed)
	return ps.completeVerification(r.Context(), user, session, parsed, err)
}

// parseResponse unseals a challenge, parses the response and checks its origin.
func (ps *Passkeys) parseResponse(r *http.Request, purpose, sealed, response string) (session webauthn.SessionData, parsed *protocol.ParsedCredentialAssertionData, err error) {
	if session, err = ps.unsealChallenge(r, purpose, sealed); err != nil {
		return session, nil, err
	}
	parsed, err = protocol.ParseCredentialRequestResponseBytes([]byte(response))
	if err == nil && parsed.Response.CollectedClientData.Origin != ps.origin {
		err = errWrongOrigin
	}
	if err != nil {
		err = rejectPasskey(err)
	}
	return session, parsed, err
}

// completeVerification rejects the response if verifyErr is set. Otherwise, it marks the challenge as used and records the use
// of the passkey.
func (ps *Passkeys) completeVerification(ctx context.Context, user *people.User, session webauthn.SessionData, parsed *protocol.ParsedCredentialAssertionData, verifyErr error) (*VerifiedPasskey, error) {
	data := parsed.Response.AuthenticatorData
	a := &VerifiedPasskey{User: user, AMR: amrOf(data.Flags)}
	if verifyErr != nil {
		return a, rejectPasskey(verifyErr)
	}
	if err := ps.consumeChallenge(ctx, user.ID, session); err != nil {
		return a, err
	}
	err := ps.recordUse(ctx, user.ID, parsed.RawID, data)
	ps.releaseChallenge(ctx, session, err)
	return a, err
}

// ErrClonedPasskey is the error for a decreased signature counter, which indicates that the passkey was copied.
var ErrClonedPasskey = errors.New("passkey signature counter decreased; the passkey may have been cloned")

// recordUse stores the signature counter of a passkey and the time of use. If the counter has decreased, it returns an error.
func (ps *Passkeys) recordUse(ctx context.Context, user string, id []byte, data protocol.AuthenticatorData) error {
	return ps.enrollments.update(ctx, user, func(e *Enrollment) error {
		i := e.passkeyIndex(id)
		if i < 0 {
			return rejectPasskey(errUnknownHandle) // the passkey was removed concurrently
		}
		p := &e.Passkeys[i]
		if p.Credential.Authenticator.UpdateCounter(data.Counter); p.Credential.Authenticator.CloneWarning {
			return rejectPasskey(ErrClonedPasskey)
		}
		p.Credential.Flags = p.Credential.Flags.Update(data.Flags)
		p.LastUsedAt = time.Now().UTC()
		return nil
	})
}

// amrOf returns the authentication methods of a passkey (RFC 8176). "hwk" is a hardware key, "swk" a software key (a passkey
// that can be backed up), and "user" means that the user was present. If the device verified the user by PIN or biometrics,
// this is a second factor ("mfa").
func amrOf(flags protocol.AuthenticatorFlags) []string {
	amr := []string{"hwk", "user"}
	if flags.HasBackupEligible() {
		amr[0] = "swk"
	}
	if flags.HasUserVerified() {
		amr = append(amr, "mfa")
	}
	return amr
}

const (
	handleSize    = 32 // size of a user handle in bytes
	maxNameLength = 60 // maximum length of a passkey's name in characters
)

func enrollmentPurpose(user, sid string) string { return "enrol " + sid + " " + user }

// userHandleKey returns the store key under which the owner of a user handle is stored. The handle itself reveals nothing about the
// user (Web Authentication §14.6.1).
func userHandleKey(handle []byte) string { return store.Key("passkey-handle", string(handle)) }

// BeginEnrollment returns a challenge for enrolling a passkey in a session.
func (ps *Passkeys) BeginEnrollment(w http.ResponseWriter, r *http.Request, user *people.User, sid string) (*Ceremony, error) {
	e, err := ps.enrollments.Load(r.Context(), user.ID)
	if err != nil {
		return nil, err
	}
	if len(e.UserHandle) == 0 {
		e.UserHandle = oauth2.RandomBytes(handleSize)
	}
	o := webAuthnUser{user, e}
	options, session, err := ps.webAuthn.BeginRegistration(o, webauthn.WithExclusions(webauthn.Credentials(o.WebAuthnCredentials()).CredentialDescriptors()))
	if err != nil {
		return nil, err
	}
	return ps.sealChallenge(w, r, enrollmentPurpose(user.ID, sid), options.Response, session)
}

// FinishEnrollment enrolls the passkey that answered a challenge. It returns recovery codes if these are the user's first.
func (ps *Passkeys) FinishEnrollment(r *http.Request, user *people.User, by SessionContext, sealed, response, name string) (recovery []string, err error) {
	session, err := ps.unsealChallenge(r, enrollmentPurpose(user.ID, by.SID), sealed)
	if err != nil {
		return nil, err
	}
	parsed, err := protocol.ParseCredentialCreationResponseBytes([]byte(response))
	if err != nil {
		return nil, rejectPasskey(err)
	}
	credential, err := ps.webAuthn.CreateCredential(webAuthnUser{user, &Enrollment{UserHandle: session.UserID}}, session, parsed)
	if err != nil {
		return nil, rejectPasskey(err)
	}
	if err := ps.checkCredential(credential, parsed.Response.CollectedClientData.Origin); err != nil {
		return nil, rejectPasskey(err)
	}
	credential.Attestation = webauthn.CredentialAttestation{}
	if err := ps.consumeChallenge(r.Context(), user.ID, session); err != nil {
		return nil, err
	}
	passkey := Passkey{Credential: *credential, Name: sanitizePasskeyName(name), EnrolledAt: time.Now().UTC()}
	recovery, err = ps.storePasskey(r.Context(), user, by, session.UserID, passkey)
	ps.releaseChallenge(r.Context(), session, err)
	return recovery, err
}

const maxCredentialIDSize = 1023 // in bytes (Web Authentication Level 3 §4)

var (
	errWrongOrigin      = errors.New("passkey response has the wrong origin")
	errCredentialIDSize = errors.New("passkey credential ID is empty or too long")
	errWeakRSAKey       = errors.New("passkey RSA key is missing or shorter than 2048 bits")
)

// checkCredential returns an error for unusable credentials. It also compares the origin case-sensitively, unlike the library.
func (ps *Passkeys) checkCredential(c *webauthn.Credential, origin string) error {
	switch {
	case origin != ps.origin:
		return errWrongOrigin
	case len(c.ID) == 0 || len(c.ID) > maxCredentialIDSize:
		return errCredentialIDSize
	}
	key, err := webauthncose.ParsePublicKey(c.PublicKey)
	if k, ok := key.(webauthncose.RSAPublicKeyData); ok && err == nil {
		err = checkRSAKey(k)
	}
	return err
}

// minRSABits is the minimum key size for authenticators; crypto/rsa only rejects keys below 1024 bits.
const minRSABits = 2048

// checkRSAKey returns an error for invalid keys that the library accepts.
func checkRSAKey(k webauthncose.RSAPublicKeyData) error {
	n, e := new(big.Int).SetBytes(k.Modulus), new(big.Int).SetBytes(k.Exponent)
	if n.BitLen() < minRSABits || n.Bit(0) == 0 || e.Bit(0) == 0 || e.BitLen() < 2 {
		return errWeakRSAKey
	}
	return nil
}

// anyEnrolledKey is the store key that is set once any passkey has been enrolled.
const anyEnrolledKey = "passkeys-in-use"

// AnyEnrolled reports whether any passkey has ever been enrolled. Until then, the sign-in page contains no challenge and no
// script.
func (ps *Passkeys) AnyEnrolled(ctx context.Context) (bool, error) {
	if ps.anyEnrolled.Load() {
		return true, nil
	}
	_, err := ps.enrollments.DurableStore.Get(ctx, anyEnrolledKey)
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	if err == nil {
		ps.anyEnrolled.Store(true)
	}
	return err == nil, err
}

// storePasskey stores the owner of the user handle first, and then the passkey.
func (ps *Passkeys) storePasskey(ctx context.Context, user *people.User, by SessionContext, handle []byte, passkey Passkey) (recovery []string, err error) {
	if err := ps.enrollments.DurableStore.Put(ctx, anyEnrolledKey, nil, enrollmentLifetime); err != nil {
		return nil, err
	}
	if err := ps.storeHandleOwner(ctx, handle, user.ID); err != nil {
		return nil, err
	}
	err = ps.enrollments.updateInSession(ctx, user, by, func(e *Enrollment) error {
		if err := e.addPasskey(handle, passkey); err != nil {
			return err
		}
		recovery = e.ensureRecoveryCodes(user.ID)
		return nil
	})
	return recovery, err
}

// addPasskey adds a passkey, unless another tab has meanwhile enrolled the user's first passkey with another handle.
func (e *Enrollment) addPasskey(handle []byte, p Passkey) error {
	switch {
	case len(e.UserHandle) > 0 && !bytes.Equal(e.UserHandle, handle):
		return ErrAlreadyEnrolled
	case len(e.Passkeys) >= maxPasskeys:
		return ErrTooManyPasskeys
	case e.passkeyIndex(p.Credential.ID) >= 0:
		return ErrAlreadyEnrolled
	}
	e.UserHandle = handle
	e.Passkeys = append(e.Passkeys, p)
	return nil
}

// storeHandleOwner stores which user owns a user handle. A handle for which no passkey is enrolled has no effect.
func (ps *Passkeys) storeHandleOwner(ctx context.Context, handle []byte, user string) error {
	err := ps.enrollments.DurableStore.Add(ctx, userHandleKey(handle), []byte(user), enrollmentLifetime)
	if errors.Is(err, store.ErrExists) {
		return nil
	}
	return err
}

// sanitizePasskeyName returns a typed name without control characters, truncated to maxNameLength.
func sanitizePasskeyName(typed string) string {
	name := []rune(strings.Join(strings.Fields(strings.ToValidUTF8(typed, "")), " "))
	if len(name) > maxNameLength {
		name = name[:maxNameLength]
	}
	if len(name) == 0 {
		return "Passkey"
	}
	return string(name)
}

// Rename renames the passkey with a credential id.
func (ps *Passkeys) Rename(ctx context.Context, user *people.User, by SessionContext, id []byte, name string) error {
	return ps.enrollments.updateInSession(ctx, user, by, func(e *Enrollment) error {
		i := e.passkeyIndex(id)
		if i < 0 {
			return ErrUnknownFactor
		}
		e.Passkeys[i].Name = sanitizePasskeyName(name)
		return nil
	})
}

// Remove removes the passkey with a credential id.
func (ps *Passkeys) Remove(ctx context.Context, user *people.User, by SessionContext, id []byte) error {
	return ps.enrollments.updateInSession(ctx, user, by, func(e *Enrollment) error {
		i := e.passkeyIndex(id)
		if i < 0 {
			return ErrUnknownFactor
		}
		e.Passkeys = append(e.Passkeys[:i], e.Passkeys[i+1:]...)
		e.dropUnusableCodes(user)
		return nil
	})
}
