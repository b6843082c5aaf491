package factor

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/go-webauthn/webauthn/protocol"
	"github.com/go-webauthn/webauthn/webauthn"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

const signInPurpose = "sign-in"

// BeginSignIn begins a sign-in with a passkey alone: whoever answers says who they are, and
// their device verifies that.
func (ps *Passkeys) BeginSignIn(w http.ResponseWriter, r *http.Request) (*Ceremony, error) {
	options, session, err := ps.web.BeginDiscoverableLogin(webauthn.WithUserVerification(protocol.VerificationRequired))
	if err != nil {
		return nil, err
	}
	return ps.begin(w, r, signInPurpose, options.Response, session)
}

// Answered is a right answer to a challenge.
type Answered struct {
	User *people.User // whose passkey it is
	AMR  []string     // how they proved who they are (RFC 8176)
}

// SignIn returns who answered the challenge of a sign-in. Beside an error, it returns whose
// passkey was refused, as far as that is known.
func (ps *Passkeys) SignIn(r *http.Request, sealed, answer string) (*Answered, error) {
	session, parsed, err := ps.read(r, signInPurpose, sealed, answer)
	if err != nil {
		return new(Answered), err
	}
	o, err := ps.byHandle(r.Context(), parsed.Response.UserHandle)
	if err != nil {
		return new(Answered), err
	}
	_, _, err = ps.web.ValidatePasskeyLogin(func(_, _ []byte) (webauthn.User, error) { return o, nil }, session, parsed)
	return ps.answered(r.Context(), o.user, session, parsed, err)
}

var errNoHandle = errors.New("nobody here has this user handle")

// byHandle returns the person with a user handle.
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

// BeginSecondFactor begins the second factor of a person with a passkey.
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

// SecondFactor checks a person's answer to the challenge of their second factor.
func (ps *Passkeys) SecondFactor(r *http.Request, user *people.User, sealed, answer string) (*Answered, error) {
	session, parsed, err := ps.read(r, factorPurpose(user.ID), sealed, answer)
	if err != nil {
		return &Answered{User: user}, err
	}
	e, err := ps.enrolments.Load(r.Context(), user.ID)
	if err != nil {
		return &Answered{User: user}, err
	}
	_, err = ps.web.ValidateLogin(owner{user, e}, session, parsed)
	return ps.answered(r.Context(), user, session, parsed, err)
}

// read opens a challenge and reads the answer to it.
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

// answered completes an answer after its check, and uses up the challenge if it was right.
func (ps *Passkeys) answered(ctx context.Context, user *people.User, session webauthn.SessionData, parsed *protocol.ParsedCredentialAssertionData, wrong error) (*Answered, error) {
	data := parsed.Response.AuthenticatorData
	a := &Answered{User: user, AMR: amrOf(data.Flags)}
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

// ErrCloned refuses a passkey whose counter went back: there is another copy of it.
var ErrCloned = errors.New("the passkey's counter went back, so there may be a copy of it")

// noteUse stores the counter of a passkey, unless it went back.
func (ps *Passkeys) noteUse(ctx context.Context, user string, id []byte, data protocol.AuthenticatorData) error {
	return ps.enrolments.change(ctx, user, func(e *Enrolment) error {
		i := e.find(id)
		if i < 0 {
			return refusePasskey(errNoHandle) // removed meanwhile
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

// amrOf says how a passkey proved its owner (RFC 8176): by a key that never leaves its
// hardware, unless it can be backed up, and that its owner touched. If the device verified
// them too, by a PIN or by what they are, that is a second factor.
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
