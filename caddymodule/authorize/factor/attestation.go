package factor

import (
	"bytes"
	"context"
	"errors"
	"math/big"
	"net/http"
	"strings"
	"time"

	"github.com/go-webauthn/webauthn/protocol"
	"github.com/go-webauthn/webauthn/protocol/webauthncose"
	"github.com/go-webauthn/webauthn/webauthn"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

const (
	handleSize = 32 // bytes of a user handle
	maxName    = 60 // runes of a passkey's name
)

func enrolPurpose(user, sid string) string { return "enrol " + sid + " " + user }

// handleKey is the store's key of whose a user handle is. The handle itself says nothing of
// the person (Web Authentication §14.6.1).
func handleKey(handle []byte) string { return store.Key("passkey-handle", string(handle)) }

// BeginEnrolment begins to enrol a passkey in the session with a sid.
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

// Enrol enrols the passkey that answered a challenge. It returns the recovery codes, if these
// are the person's first.
func (ps *Passkeys) Enrol(r *http.Request, user *people.User, by By, sealed, answer, name string) (recovery []string, err error) {
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
	errOrigin       = errors.New("the passkey was asked for by a page of another origin")
	errCredentialID = errors.New("the id of the credential is empty or too long")
	errRSAKey       = errors.New("the RSA key is shorter than 2048 bits, or none")
)

// check refuses what nobody could sign in with, and an origin that no browser writes: the
// library compares it without case.
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

// minRSABits is what Web Authentication's authenticators have at least; crypto/rsa verifies none below 1024.
const minRSABits = 2048

// checkRSA refuses keys that the library takes as long as they can be read.
func checkRSA(k webauthncose.RSAPublicKeyData) error {
	n, e := new(big.Int).SetBytes(k.Modulus), new(big.Int).SetBytes(k.Exponent)
	if n.BitLen() < minRSABits || n.Bit(0) == 0 || e.Bit(0) == 0 || e.BitLen() < 2 {
		return errRSAKey
	}
	return nil
}

// inUseKey is the store's key of whether anybody has enrolled a passkey.
const inUseKey = "passkeys-in-use"

// InUse reports whether anybody has enrolled a passkey: until then none is worth asking for,
// and the sign-in page needs no script. It stays so.
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

// add stores a passkey, and before that whose its handle is.
func (ps *Passkeys) add(ctx context.Context, user *people.User, by By, handle []byte, passkey Passkey) (recovery []string, err error) {
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

// addPasskey adds a passkey. Another tab may have enrolled the person's first, with another
// handle, meanwhile.
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

// keepHandle stores whose a handle is. One without a passkey means nothing.
func (ps *Passkeys) keepHandle(ctx context.Context, handle []byte, user string) error {
	err := ps.enrolments.Durable.Add(ctx, handleKey(handle), []byte(user), lifetime)
	if errors.Is(err, store.ErrExists) {
		return nil
	}
	return err
}

// passkeyName is a typed name without control characters, and not too long.
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

// Rename gives a passkey, by the id of its credential, another name.
func (ps *Passkeys) Rename(ctx context.Context, user *people.User, by By, id []byte, name string) error {
	return ps.enrolments.changeBy(ctx, user, by, func(e *Enrolment) error {
		i := e.find(id)
		if i < 0 {
			return ErrUnknown
		}
		e.Passkeys[i].Name = passkeyName(name)
		return nil
	})
}

// Remove removes a passkey, by the id of its credential.
func (ps *Passkeys) Remove(ctx context.Context, user *people.User, by By, id []byte) error {
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
