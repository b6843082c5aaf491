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
	web        *webauthn.WebAuthn
	origin     string // origin of the pages
	enrolments *Enrolments
	directory  *people.Directory
	sealer     *browser.Sealer
	challenges store.Store         // store for answered challenges
	answers    *store.PerUserLimit // answered challenges by user
	inUse      atomic.Bool         // cached result of [Passkeys.InUse]
}

// ErrPasskey rejects a passkey.
var ErrPasskey = errors.New("the passkey was not accepted")

// ceremonyLifetime is the lifetime of a challenge.
const ceremonyLifetime = 10 * time.Minute

const (
	spentLifetime = ceremonyLifetime + time.Minute

	// maxAnswers is the number of answered challenges remembered per user. Each required the user's
	// passkey in this browser.
	maxAnswers = 200
)

// refusePasskey returns an [ErrPasskey] with a cause that is only logged.
func refusePasskey(cause error) error {
	return &oauth2.Error{
		Code: "access_denied", Description: ErrPasskey.Error(), Status: http.StatusForbidden, Err: errors.Join(ErrPasskey, cause),
	}
}

// NewPasskeys returns the passkeys of an issuer: its host is the relying party id, and its URL the
// origin. It returns nil for an IP address, which does not permit passkeys.
func NewPasskeys(issuer string, enrolments *Enrolments, directory *people.Directory, sealer *browser.Sealer, challenges store.Store) *Passkeys {
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
	return &Passkeys{web: web, origin: strings.ToLower(issuer), enrolments: enrolments, directory: directory, sealer: sealer, challenges: challenges,
		answers: store.NewPerUserLimit(maxAnswers, spentLifetime),
	}
}

// owner is a user in the form required by ceremonies.
type owner struct {
	user      *people.User
	enrolment *Enrolment
}

// WebAuthnID returns the user handle.
func (o owner) WebAuthnID() []byte { return o.enrolment.Handle }

// WebAuthnName returns the sign-in name.
func (o owner) WebAuthnName() string { return o.user.ID }

// WebAuthnDisplayName returns the name shown by the authenticator.
func (o owner) WebAuthnDisplayName() string { return o.user.Label().Name }

// WebAuthnCredentials returns the user's passkeys.
func (o owner) WebAuthnCredentials() []webauthn.Credential {
	credentials := make([]webauthn.Credential, len(o.enrolment.Passkeys))
	for i, p := range o.enrolment.Passkeys {
		credentials[i] = p.Credential
	}
	return credentials
}

// Ceremony is a challenge for a page. The browser stores it sealed, so that abandoned challenges use no memory.
type Ceremony struct {
	Options string // options of navigator.credentials in JSON
	Sealed  string // sealed challenge, submitted with the response
}

// begin seals a challenge for this browser and one purpose.
func (ps *Passkeys) begin(w http.ResponseWriter, r *http.Request, purpose string, options any, session *webauthn.SessionData) (*Ceremony, error) {
	sealed, err := ps.sealer.SealJSON(w, r, "passkey "+purpose, session)
	if err != nil {
		return nil, err
	}
	shown, err := json.Marshal(options)
	return &Ceremony{Options: string(shown), Sealed: sealed}, err
}

// open unseals a challenge sealed by begin.
func (ps *Passkeys) open(r *http.Request, purpose, sealed string) (session webauthn.SessionData, err error) {
	err = ps.sealer.UnsealJSON(r, "passkey "+purpose, sealed, ceremonyLifetime, refusePasskey(keyring.ErrUnsealed), &session)
	return session, err
}

var errReplayed = errors.New("the challenge has already been used")

// spend uses a challenge up. It must be called only for verified responses, because wrong ones,
// which need no key, must not fill the store.
func (ps *Passkeys) spend(ctx context.Context, user string, session webauthn.SessionData) error {
	key := challengeKey(session)
	err := ps.challenges.Do(ctx, append(ps.answers.Record(user, key), &store.Call{Op: store.Add, Key: key, TTL: spentLifetime})...)
	if errors.Is(err, store.ErrExists) {
		return refusePasskey(errReplayed)
	}
	return err
}

func challengeKey(session webauthn.SessionData) string {
	return store.Key("passkey-challenge", session.Challenge)
}

// release makes a challenge usable again after an internal error.
func (ps *Passkeys) release(ctx context.Context, session webauthn.SessionData, err error) {
	if _, refused := errors.AsType[*oauth2.Error](err); err != nil && !refused {
		_ = ps.challenges.Delete(context.WithoutCancel(ctx), challengeKey(session)) // on error, the entry expires
	}
}

const signInPurpose = "sign-in"

// BeginSignIn starts a sign-in by passkey alone: the passkey identifies the user, and the device verifies them.
func (ps *Passkeys) BeginSignIn(w http.ResponseWriter, r *http.Request) (*Ceremony, error) {
	options, session, err := ps.web.BeginDiscoverableLogin(webauthn.WithUserVerification(protocol.VerificationRequired))
	if err != nil {
		return nil, err
	}
	return ps.begin(w, r, signInPurpose, options.Response, session)
}

// VerifiedPasskey is a verified response to a challenge.
type VerifiedPasskey struct {
	User *people.User // owner of the passkey
	AMR  []string     // authentication methods (RFC 8176)
}

// SignIn returns the user who responded to a sign-in challenge. With an error, it returns the owner
// of the rejected passkey, if known.
func (ps *Passkeys) SignIn(r *http.Request, sealed, answer string) (*VerifiedPasskey, error) {
	session, parsed, err := ps.read(r, signInPurpose, sealed, answer)
	if err != nil {
		return new(VerifiedPasskey), err
	}
	o, err := ps.byHandle(r.Context(), parsed.Response.UserHandle)
	if err != nil {
		return new(VerifiedPasskey), err
	}
	_, _, err = ps.web.ValidatePasskeyLogin(func(_, _ []byte) (webauthn.User, error) { return o, nil }, session, parsed)
	return ps.answered(r.Context(), o.user, session, parsed, err)
}

var errNoHandle = errors.New("no user has this passkey user handle")

// byHandle returns the user with a user handle.
func (ps *Passkeys) byHandle(ctx context.Context, handle []byte) (owner, error) {
	id, err := ps.enrolments.Durable.Get(ctx, handleKey(handle))
	if errors.Is(err, store.ErrNotFound) {
		err = refusePasskey(errNoHandle)
	}
	if err != nil {
		return owner{}, err
	}
	user := ps.directory.User(string(id))
	if user == nil || user.Disabled {
		return owner{}, refusePasskey(errNoHandle)
	}
	e, err := ps.enrolments.Load(ctx, user.ID)
	return owner{user, e}, err
}

func factorPurpose(user string) string { return "second factor " + user }

// BeginSecondFactor starts a second factor by passkey.
func (ps *Passkeys) BeginSecondFactor(w http.ResponseWriter, r *http.Request, user *people.User) (*Ceremony, error) {
	e, err := ps.enrolments.Load(r.Context(), user.ID)
	if err != nil {
		return nil, err
	}
	options, session, err := ps.web.BeginLogin(owner{user, e})
	if err != nil {
		return nil, err
	}
	return ps.begin(w, r, factorPurpose(user.ID), options.Response, session)
}

// SecondFactor verifies a user's response to the challenge of the second factor.
func (ps *Passkeys) SecondFactor(r *http.Request, user *people.User, sealed, answer string) (*VerifiedPasskey, error) {
	session, parsed, err := ps.read(r, factorPurpose(user.ID), sealed, answer)
	if err != nil {
		return &VerifiedPasskey{User: user}, err
	}
	e, err := ps.enrolments.Load(r.Context(), user.ID)
	if err != nil {
		return &VerifiedPasskey{User: user}, err
	}
	_, err = ps.web.ValidateLogin(owner{user, e}, session, parsed)
	return ps.answered(r.Context(), user, session, parsed, err)
}

// read unseals a challenge and parses the response.
func (ps *Passkeys) read(r *http.Request, purpose, sealed, answer string) (session webauthn.SessionData, parsed *protocol.ParsedCredentialAssertionData, err error) {
	if session, err = ps.open(r, purpose, sealed); err != nil {
		return session, nil, err
	}
	parsed, err = protocol.ParseCredentialRequestResponseBytes([]byte(answer))
	if err == nil && parsed.Response.CollectedClientData.Origin != ps.origin {
		err = errOrigin
	}
	if err != nil {
		err = refusePasskey(err)
	}
	return session, parsed, err
}

// answered completes a verified response and uses the challenge up.
func (ps *Passkeys) answered(ctx context.Context, user *people.User, session webauthn.SessionData, parsed *protocol.ParsedCredentialAssertionData, wrong error) (*VerifiedPasskey, error) {
	data := parsed.Response.AuthenticatorData
	a := &VerifiedPasskey{User: user, AMR: amrOf(data.Flags)}
	if wrong != nil {
		return a, refusePasskey(wrong)
	}
	if err := ps.spend(ctx, user.ID, session); err != nil {
		return a, err
	}
	err := ps.noteUse(ctx, user.ID, parsed.RawID, data)
	ps.release(ctx, session, err)
	return a, err
}

// ErrCloned rejects a passkey with a decreased signature counter, which indicates a copy.
var ErrCloned = errors.New("passkey signature counter decreased; the passkey may have been cloned")

// noteUse stores the signature counter of a passkey, unless it has decreased.
func (ps *Passkeys) noteUse(ctx context.Context, user string, id []byte, data protocol.AuthenticatorData) error {
	return ps.enrolments.change(ctx, user, func(e *Enrolment) error {
		i := e.find(id)
		if i < 0 {
			return refusePasskey(errNoHandle) // removed concurrently
		}
		p := &e.Passkeys[i]
		if p.Credential.Authenticator.UpdateCounter(data.Counter); p.Credential.Authenticator.CloneWarning {
			return refusePasskey(ErrCloned)
		}
		p.Credential.Flags = p.Credential.Flags.Update(data.Flags)
		p.Used = time.Now().UTC()
		return nil
	})
}

// amrOf returns the authentication methods of a passkey (RFC 8176): a hardware key, or a software
// key if it can be backed up, with user presence. User verification by the device, by PIN or
// biometrics, is a second factor.
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
	handleSize = 32 // size of a user handle in bytes
	maxName    = 60 // maximum length of a passkey's name in runes
)

func enrolPurpose(user, sid string) string { return "enrol " + sid + " " + user }

// handleKey returns the store key of the owner of a user handle. The handle itself reveals nothing
// about the user (Web Authentication §14.6.1).
func handleKey(handle []byte) string { return store.Key("passkey-handle", string(handle)) }

// BeginEnrolment starts the enrollment of a passkey in a session.
func (ps *Passkeys) BeginEnrolment(w http.ResponseWriter, r *http.Request, user *people.User, sid string) (*Ceremony, error) {
	e, err := ps.enrolments.Load(r.Context(), user.ID)
	if err != nil {
		return nil, err
	}
	if len(e.Handle) == 0 {
		e.Handle = oauth2.RandomBytes(handleSize)
	}
	o := owner{user, e}
	options, session, err := ps.web.BeginRegistration(o, webauthn.WithExclusions(webauthn.Credentials(o.WebAuthnCredentials()).CredentialDescriptors()))
	if err != nil {
		return nil, err
	}
	return ps.begin(w, r, enrolPurpose(user.ID, sid), options.Response, session)
}

// Enrol enrolls the passkey that responded to a challenge. It returns recovery codes if these are the user's first.
func (ps *Passkeys) Enrol(r *http.Request, user *people.User, by SessionContext, sealed, answer, name string) (recovery []string, err error) {
	session, err := ps.open(r, enrolPurpose(user.ID, by.SID), sealed)
	if err != nil {
		return nil, err
	}
	parsed, err := protocol.ParseCredentialCreationResponseBytes([]byte(answer))
	if err != nil {
		return nil, refusePasskey(err)
	}
	credential, err := ps.web.CreateCredential(owner{user, &Enrolment{Handle: session.UserID}}, session, parsed)
	if err != nil {
		return nil, refusePasskey(err)
	}
	if err := ps.check(credential, parsed.Response.CollectedClientData.Origin); err != nil {
		return nil, refusePasskey(err)
	}
	credential.Attestation = webauthn.CredentialAttestation{}
	if err := ps.spend(r.Context(), user.ID, session); err != nil {
		return nil, err
	}
	passkey := Passkey{Credential: *credential, Name: passkeyName(name), Added: time.Now().UTC()}
	recovery, err = ps.add(r.Context(), user, by, session.UserID, passkey)
	ps.release(r.Context(), session, err)
	return recovery, err
}

const maxCredentialID = 1023 // bytes (Web Authentication Level 3 §4)

var (
	errOrigin       = errors.New("passkey requested by a page of another origin")
	errCredentialID = errors.New("the id of the credential is empty or too long")
	errRSAKey       = errors.New("RSA key is missing or shorter than 2048 bits")
)

// check rejects unusable credentials. It also compares the origin case-sensitively, which the
// library does not.
func (ps *Passkeys) check(c *webauthn.Credential, origin string) error {
	switch {
	case origin != ps.origin:
		return errOrigin
	case len(c.ID) == 0 || len(c.ID) > maxCredentialID:
		return errCredentialID
	}
	key, err := webauthncose.ParsePublicKey(c.PublicKey)
	if k, ok := key.(webauthncose.RSAPublicKeyData); ok && err == nil {
		err = checkRSA(k)
	}
	return err
}

// minRSABits is the minimum of Web Authentication authenticators; crypto/rsa rejects keys below 1024 bits.
const minRSABits = 2048

// checkRSA rejects invalid keys that the library accepts.
func checkRSA(k webauthncose.RSAPublicKeyData) error {
	n, e := new(big.Int).SetBytes(k.Modulus), new(big.Int).SetBytes(k.Exponent)
	if n.BitLen() < minRSABits || n.Bit(0) == 0 || e.Bit(0) == 0 || e.BitLen() < 2 {
		return errRSAKey
	}
	return nil
}

// inUseKey is the store key that marks the use of passkeys.
const inUseKey = "passkeys-in-use"

// InUse reports whether any passkey has ever been enrolled. Until then, the sign-in page needs no
// challenge and no script.
func (ps *Passkeys) InUse(ctx context.Context) (bool, error) {
	if ps.inUse.Load() {
		return true, nil
	}
	_, err := ps.enrolments.Durable.Get(ctx, inUseKey)
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	if err == nil {
		ps.inUse.Store(true)
	}
	return err == nil, err
}

// add stores the owner of the handle and then the passkey.
func (ps *Passkeys) add(ctx context.Context, user *people.User, by SessionContext, handle []byte, passkey Passkey) (recovery []string, err error) {
	if err := ps.enrolments.Durable.Put(ctx, inUseKey, nil, lifetime); err != nil {
		return nil, err
	}
	if err := ps.keepHandle(ctx, handle, user.ID); err != nil {
		return nil, err
	}
	err = ps.enrolments.changeBy(ctx, user, by, func(e *Enrolment) error {
		if err := e.addPasskey(handle, passkey); err != nil {
			return err
		}
		recovery = e.firstRecovery(user.ID)
		return nil
	})
	return recovery, err
}

// addPasskey adds a passkey, unless another tab has meanwhile enrolled the user's first passkey with another handle.
func (e *Enrolment) addPasskey(handle []byte, p Passkey) error {
	switch {
	case len(e.Handle) > 0 && !bytes.Equal(e.Handle, handle):
		return ErrEnrolled
	case len(e.Passkeys) >= maxPasskeys:
		return ErrTooMany
	case e.find(p.Credential.ID) >= 0:
		return ErrEnrolled
	}
	e.Handle = handle
	e.Passkeys = append(e.Passkeys, p)
	return nil
}

// keepHandle stores the owner of a handle. A handle without a passkey has no effect.
func (ps *Passkeys) keepHandle(ctx context.Context, handle []byte, user string) error {
	err := ps.enrolments.Durable.Add(ctx, handleKey(handle), []byte(user), lifetime)
	if errors.Is(err, store.ErrExists) {
		return nil
	}
	return err
}

// passkeyName returns a typed name without control characters, truncated.
func passkeyName(typed string) string {
	name := []rune(strings.Join(strings.Fields(strings.ToValidUTF8(typed, "")), " "))
	if len(name) > maxName {
		name = name[:maxName]
	}
	if len(name) == 0 {
		return "Passkey"
	}
	return string(name)
}

// Rename renames a passkey by credential id.
func (ps *Passkeys) Rename(ctx context.Context, user *people.User, by SessionContext, id []byte, name string) error {
	return ps.enrolments.changeBy(ctx, user, by, func(e *Enrolment) error {
		i := e.find(id)
		if i < 0 {
			return ErrUnknown
		}
		e.Passkeys[i].Name = passkeyName(name)
		return nil
	})
}

// Remove removes a passkey by credential id.
func (ps *Passkeys) Remove(ctx context.Context, user *people.User, by SessionContext, id []byte) error {
	return ps.enrolments.changeBy(ctx, user, by, func(e *Enrolment) error {
		i := e.find(id)
		if i < 0 {
			return ErrUnknown
		}
		e.Passkeys = append(e.Passkeys[:i], e.Passkeys[i+1:]...)
		e.dropRecovery(user)
		return nil
	})
}
