package authorize

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"net/http"
	"regexp"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/totp"
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

	// tokensBoundTo is the credentialHash of a local user.
	tokensBoundTo string

	// groups are those that the provider told of.
	groups []string
}

// PasswordComparer checks a password against a hash. Its method is that of the
// modules in Caddy's namespace http.authentication.hashes.
type PasswordComparer interface {
	// Compare says whether a password is the one that was hashed. It fails on what
	// is no hash of its kind.
	Compare(hash, password []byte) (bool, error)
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

var errWrongPassword = &oauth2.Error{Code: "access_denied", Description: "unknown user or wrong password", Status: http.StatusForbidden}

// directory holds the local users and checks their passwords.
type directory struct {
	users   map[string]*User
	names   map[string][]string // IDs by canonicalName
	compare PasswordComparer

	// hashes are all users'. One of them is compared when the user is unknown,
	// so that the time taken does not tell which names exist.
	hashes []string

	turns hashTurns
}

func newDirectory(users []User, compare PasswordComparer) (*directory, error) {
	d := &directory{
		users:   make(map[string]*User, len(users)),
		names:   make(map[string][]string, len(users)),
		compare: compare,
		turns:   newHashTurns(),
	}
	for i := range users {
		u := &users[i]
		if u.ID == "" || u.PasswordHash == "" {
			return nil, fmt.Errorf("user %q needs an id and a password_hash", u.ID)
		}
		if d.users[u.ID] != nil {
			return nil, fmt.Errorf("user %q is there twice", u.ID)
		}
		if err := CheckFHIRUser(u.FHIRUser); u.FHIRUser != "" && err != nil {
			return nil, fmt.Errorf("user %q: fhir_user %w", u.ID, err)
		}
		if u.TOTPSecret != "" {
			if err := totp.CheckSecret(u.TOTPSecret); err != nil {
				return nil, fmt.Errorf("user %q: %w", u.ID, err)
			}
		}
		for name, value := range u.Claims {
			if err := CheckClaim(name, value); err != nil {
				return nil, fmt.Errorf("user %q: %w", u.ID, err)
			}
		}
		if u.Email != "" {
			if err := CheckEmail(u.Email); err != nil {
				return nil, fmt.Errorf("user %q: %w", u.ID, err)
			}
		}
		u.username, u.tokensBoundTo = u.ID, u.credentialHash()
		d.users[u.ID] = u
		d.names[canonicalName(u.ID)] = append(d.names[canonicalName(u.ID)], u.ID)
		d.hashes = append(d.hashes, u.PasswordHash)
	}
	return d, nil
}

// accountNamed is the ID of the one account that somebody means who types a name: the
// one of this name to the letter, or else the only one of any spelling. It is empty
// where there is none.
func (d *directory) accountNamed(typed string) string {
	if d.users[typed] != nil {
		return typed
	}
	if ids := d.names[canonicalName(typed)]; len(ids) == 1 {
		return ids[0]
	}
	return ""
}

// signIn returns the user whose password this is, or errWrongPassword.
func (d *directory) signIn(ctx context.Context, from attempt, id, password string) (*User, error) {
	if len(d.users) == 0 {
		return nil, errWrongPassword
	}
	leave, err := d.turns.enter(ctx, from)
	if err != nil {
		return nil, err
	}
	defer leave()
	user, hash := d.users[id], d.decoy(id)
	if user != nil {
		hash = user.PasswordHash
	}
	right, err := d.compare.Compare([]byte(hash), []byte(password))
	if err != nil {
		return nil, fmt.Errorf("checking a password: %w", err)
	}
	if user == nil || user.Disabled || !right {
		return nil, errWrongPassword
	}
	return user, nil
}

// decoy is the hash to compare for a name that is unknown: always the same one
// for a name, and each user's for as many names. Where hashes cost differently,
// a slow or quick answer then says as little of a name as another. One decoy for
// all, however slow, would tell apart every user whose hash is quicker.
func (d *directory) decoy(id string) string {
	sum := sha256.Sum256([]byte(id))
	return d.hashes[binary.BigEndian.Uint64(sum[:])%uint64(len(d.hashes))]
}

// credential changes when the user's password or second factor does: sessions
// carry it, so that such a change ends them.
func (u *User) credential() [sha256.Size]byte {
	return sha256.Sum256([]byte(u.PasswordHash + "\x00" + u.TOTPSecret))
}

// credentialHash ties access tokens to the user's credential, as at_hash does an ID
// token: the half of its digest. Clients can read it. It says nothing of the password,
// whose hash has a salt, and which is at most guessed by who knows that.
func (u *User) credentialHash() string {
	sum := u.credential()
	return base64.RawURLEncoding.EncodeToString(sum[:sha256.Size/2])
}
