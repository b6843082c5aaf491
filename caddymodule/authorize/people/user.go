package people

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"regexp"
)

// User is a person whose password this server checks itself.
type User struct {
	// ID is the name to sign in with, and the sub of tokens.
	ID string

	// PasswordHash is in a form that [Config.Passwords] knows.
	PasswordHash string

	// TOTPSecret is the key of the person's authenticator app in base32 ([totp.CheckSecret]).
	// Who has one is asked for a code after the password, and also after a
	// linked identity provider: the second factor is the account's, however its
	// owner comes (RFC 6238). Default: no second factor.
	TOTPSecret string

	// Name is the name claim.
	Name string

	// Email is the email claim.
	Email string

	// EmailVerified is the email_verified claim.
	EmailVerified bool

	// Phone is the phone_number claim, in E.164 form.
	Phone string

	// FHIRUser is the person's own FHIR resource, as Type/id below the FHIR
	// base (SMART App Launch 2.2, scopes for requesting identity data).
	FHIRUser string

	// Claims are further claims of OpenID Connect Core §5.1, by name; those of
	// an address have names such as address.locality. See [CheckClaim].
	Claims map[string]string

	// Disabled users cannot sign in, by password or by a linked identity
	// provider, and what they were given ends.
	Disabled bool

	// username is preferred_username: the ID of a local user, what the provider
	// says of a federated one.
	username string

	// TokensBoundTo is the credentialHash of a local user.
	TokensBoundTo string

	// groups are those that the provider told of.
	groups []string
}

// CheckFHIRUser says why a reference cannot be a person's own resource, if it
// cannot: the types are those of SMART App Launch 2.2, the form of the id that of
// FHIR R4 §2.24.0.1.
func CheckFHIRUser(reference string) error {
	if !fhirUserPattern.MatchString(reference) {
		return fmt.Errorf("%q must be Patient/…, Practitioner/…, PractitionerRole/…, RelatedPerson/… or Person/… with a FHIR id", reference)
	}
	return nil
}

var fhirUserPattern = regexp.MustCompile(`^(Patient|Practitioner|PractitionerRole|RelatedPerson|Person)/[A-Za-z0-9.-]{1,64}$`)

// Credential changes when the user's password or second factor does: sessions
// carry it, so that such a change ends them.
func (u *User) Credential() [sha256.Size]byte {
	return sha256.Sum256([]byte(u.PasswordHash + "\x00" + u.TOTPSecret))
}

// credentialHash ties access tokens to the user's credential, as at_hash does an ID
// token: the half of its digest. Clients can read it. It says nothing of the password,
// whose hash has a salt, and which is at most guessed by who knows that.
func (u *User) credentialHash() string {
	sum := u.Credential()
	return base64.RawURLEncoding.EncodeToString(sum[:sha256.Size/2])
}

// Label is what a page calls somebody: by name, and by what tells namesakes apart.
type Label struct {
	Name   string // a name, if there is one
	Detail string // what else is known, such as the e-mail address; "" for nothing
}

// Label is what pages call the person.
func (u *User) Label() Label {
	var known []string
	for _, word := range []string{u.Name, u.username, u.Email} {
		if word != "" {
			known = append(known, word)
		}
	}
	switch len(known) {
	case 0:
		return Label{Name: "your account"}
	case 1:
		return Label{Name: known[0]}
	}
	return Label{known[0], known[1]}
}
