package factor

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-webauthn/webauthn/protocol"
	"github.com/go-webauthn/webauthn/webauthn"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/browser"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// maxPasskeys is how many passkeys a person can have.
const maxPasskeys = 20

// Passkeys enrols and checks passkeys.
type Passkeys struct {
	web        *webauthn.WebAuthn
	origin     string // of the pages that ask
	enrolments *Enrolments
	directory  *people.Directory
	sealer     *browser.Sealer
	challenges store.Store   // those that were answered
	answers    *store.Latest // of each person
	inUse      atomic.Bool   // what [Passkeys.InUse] found
}

// ErrPasskey refuses a passkey.
var ErrPasskey = errors.New("the passkey was not accepted")

// ceremonyLifetime is how long a challenge can be answered.
const ceremonyLifetime = 10 * time.Minute

const (
	spentLifetime = ceremonyLifetime + time.Minute

	// maxAnswers is how many answered challenges of one person are remembered. Each took the
	// person's passkey, in this browser.
	maxAnswers = 200
)

// refusePasskey returns an [ErrPasskey] that says why in the log alone.
func refusePasskey(cause error) error {
	return &oauth2.Error{
		Code: "access_denied", Description: ErrPasskey.Error(), Status: http.StatusForbidden, Err: errors.Join(ErrPasskey, cause),
	}
}

// NewPasskeys returns the passkeys of an issuer: its host is the relying party, and its
// address the origin. It returns nil if the host is an IP address, which can have none.
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
		answers: store.NewLatest(maxAnswers, spentLifetime),
	}
}

// owner is a person as the ceremonies see them.
type owner struct {
	user      *people.User
	enrolment *Enrolment
}

// WebAuthnID is the user handle.
func (o owner) WebAuthnID() []byte { return o.enrolment.Handle }

// WebAuthnName is the name to sign in with.
func (o owner) WebAuthnName() string { return o.user.ID }

// WebAuthnDisplayName is what the authenticator shows.
func (o owner) WebAuthnDisplayName() string { return o.user.Label().Name }

// WebAuthnCredentials are the person's passkeys.
func (o owner) WebAuthnCredentials() []webauthn.Credential {
	credentials := make([]webauthn.Credential, len(o.enrolment.Passkeys))
	for i, p := range o.enrolment.Passkeys {
		credentials[i] = p.Credential
	}
	return credentials
}
