package fhirapp

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/caddyauth"
	"golang.org/x/crypto/argon2"
	"golang.org/x/crypto/bcrypt"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/launch"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/totp"
)

// User is a local user who signs in with a password.
type User struct {
	// The user name, which is the `sub` of tokens. Required.
	Name string `json:"name,omitempty"`

	// The password hash: the output of `caddy hash-password --algorithm argon2id`, or a bcrypt hash. Placeholders are
	// supported. Required.
	PasswordHash string `json:"password_hash,omitempty"`

	// The secret of the user's authenticator app (RFC 6238), as created by `caddy fhir-totp`: the base32 of at least 16 bytes.
	// The code is requested after the password, and after sign-in through an identity provider that links to this user.
	// Placeholders are supported. Default: no second factor.
	TOTPSecret string `json:"totp_secret,omitempty"`

	// The value of the claim `name`. Default: none.
	DisplayName string `json:"display_name,omitempty"`

	// The value of the claim `email`. If a provider links users by email (`link_email`), a verified address must be unique
	// among the users. Default: none.
	Email string `json:"email,omitempty"`

	// The value of the claim `email_verified`. Default: false.
	EmailVerified bool `json:"email_verified,omitempty"`

	// The value of the claim `phone_number` in E.164 format, such as `+15550100`. Default: none.
	Phone string `json:"phone,omitempty"`

	// The FHIR resource that represents the user, relative to the FHIR base, such as `Practitioner/alice` (SMART App Launch
	// 2.2, `fhirUser`). Allowed types are Patient, Practitioner, PractitionerRole, RelatedPerson and Person. Default: none.
	FHIRUser string `json:"fhir_user,omitempty"`

	// The ids of patients that the user can select when an app requests a patient (`launch/patient`), in addition to patients
	// found through the user's FHIR resource. Default: none.
	Patients []string `json:"patients,omitempty"`

	// The user's groups, for `scope_limit`, policies, and the claim `groups`. Default: none.
	Groups []string `json:"groups,omitempty"`

	// Other claims of OpenID Connect Core §5.1, such as `family_name`, `birthdate` or, within an address, `address.locality`.
	// Clients request them with the scopes `profile`, `phone` and `address`. Default: none.
	Claims map[string]string `json:"claims,omitempty"`

	// Disables sign-in and revokes all grants and sessions of the user. Default: false.
	Disabled bool `json:"disabled,omitempty"`
}

// resolve returns the user for package authorize and replaces placeholders in the user's secrets.
func (u *User) resolve(logger *slog.Logger) (zero people.User, err error) {
	hash, totpSecret := u.PasswordHash, u.TOTPSecret
	if err := option.ResolveSecrets(map[string]*string{"password_hash": &hash, "totp_secret": &totpSecret}); err != nil {
		return zero, err
	}
	if err := CheckPasswordHash(hash); err != nil {
		return zero, err
	}
	if isCostlyHash(hash) {
		logger.Warn("password hash is slow to compare, so sign-in attempts could overload the gateway; create a cheaper hash with: "+hashCommand, "user", u.Name)
	}
	return u.WithSecrets(hash, totpSecret), nil
}

// WithSecrets returns the user for package authorize, with the given password hash and TOTP secret.
func (u *User) WithSecrets(hash, totpSecret string) people.User {
	return people.User{
		ID: u.Name, PasswordHash: hash, TOTPSecret: totpSecret, Name: u.DisplayName, Email: u.Email,
		EmailVerified: u.EmailVerified, Phone: u.Phone, FHIRUser: u.FHIRUser, Disabled: u.Disabled,
		Claims: u.Claims, Patients: u.Patients, Groups: u.Groups,
	}
}

// parse parses a user.
func (u *User) parse(d *caddyfile.Dispenser, checkName func(string) error) error {
	err := u.ParseOptions(d, checkName)
	if err == nil && u.PasswordHash == "" {
		err = d.Errf("user %q: password_hash is required", u.Name)
	}
	return err
}

// ParseOptions parses a possibly incomplete user: a name and a block. checkName, if not nil, checks the name.
func (u *User) ParseOptions(d *caddyfile.Dispenser, checkName func(string) error) error {
	if err := option.Word(&u.Name, checkName)(d); err != nil {
		return err
	}
	return option.Block{
		"password_hash": option.Word(&u.PasswordHash, option.IfLiteral(CheckPasswordHash)),
		"totp_secret":   option.Word(&u.TOTPSecret, option.IfLiteral(totp.CheckSecret)),
		"name":          option.Word(&u.DisplayName, nil),
		"email":         option.OneOrTwoWords(u.setEmail, u.setEmailVerified),
		"phone":         option.Word(&u.Phone, nil),
		"fhir_user":     option.Word(&u.FHIRUser, people.CheckFHIRUser),
		"patient":       option.Words(&u.Patients, checkPatient),
		"group":         option.Words(&u.Groups, nil),
		"claim":         option.Pair(&u.Claims, people.CheckClaim),
		"disabled":      option.Flag(&u.Disabled),
	}.Parse(d, "claim")
}

func checkPatient(id string) error {
	if !launch.IsID(id) {
		return fmt.Errorf("%q is not a valid Patient id", id)
	}
	return nil
}

func (u *User) setEmail(address string) error {
	u.Email = address
	return people.CheckEmail(address)
}

func (u *User) setEmailVerified(w string) error {
	if u.EmailVerified = w == "verified"; !u.EmailVerified {
		return fmt.Errorf("unexpected %q: only verified may follow the address", w)
	}
	return nil
}

// hashCommand creates a hash that takes about 50 ms to compare. Caddy's default, bcrypt with cost 14, uses more than a second
// of CPU time per sign-in attempt.
const hashCommand = "caddy hash-password --algorithm argon2id"

var errUnknownHash = errors.New("is neither bcrypt nor argon2id; create one with: " + hashCommand)

// Passwords compares passwords with Caddy's hash modules, selected by the prefix of the hash.
type Passwords struct{}

// Compare implements [people.PasswordComparer].
func (Passwords) Compare(hash, password []byte) (bool, error) {
	if strings.HasPrefix(string(hash), "$argon2id$") {
		return caddyauth.Argon2idHash{}.Compare(hash, password)
	}
	return caddyauth.BcryptHash{}.Compare(hash, password)
}

// HashPassword returns a hash of a password, with the parameters of hashCommand.
func HashPassword(password string) string {
	const passes, memory, threads, keyLength = 1, 46 << 10, 1, 32
	salt := make([]byte, 16)
	rand.Read(salt) // never fails
	key := argon2.IDKey([]byte(password), salt, passes, memory, threads, keyLength)
	encode := base64.RawStdEncoding.EncodeToString
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version, memory, passes, threads, encode(salt), encode(key))
}

// checkHash returns the errors that Compare would return at the first sign-in, so that they are detected at load time.
func checkHash(hash string) error {
	if strings.HasPrefix(hash, "$argon2id$") {
		if _, _, err := caddyauth.DecodeHash([]byte(hash)); err != nil {
			return err
		}
		if _, passes, threads := argon2idCost(hash); passes == 0 || threads == 0 {
			return errors.New("is not a valid argon2id hash: iterations or threads are missing")
		}
		return nil
	}
	if _, err := bcrypt.Cost([]byte(hash)); err != nil {
		return errUnknownHash
	}
	return nil
}

// CheckPasswordHash returns an error that contains the option's name if a hash is invalid. The error does not contain the
// value, which may be a password.
func CheckPasswordHash(hash string) error {
	if err := checkHash(hash); err != nil {
		return fmt.Errorf("password_hash %w", err)
	}
	return nil
}

// Costs above which a hash causes a warning. They correspond to about half a second of CPU time.
const (
	maxBcryptCost   = 12
	maxArgon2idCost = 256 << 10 // memory in KiB times passes
)

// isCostlyHash reports whether a few comparisons with a valid hash would occupy all CPUs.
func isCostlyHash(hash string) bool {
	if strings.HasPrefix(hash, "$argon2id$") {
		memory, passes, _ := argon2idCost(hash)
		return uint64(memory)*uint64(passes) > maxArgon2idCost
	}
	cost, err := bcrypt.Cost([]byte(hash))
	return err == nil && cost > maxBcryptCost
}

// argon2idCost returns the memory in KiB, passes and threads of an argon2id hash, or zeros if the hash does not contain them.
func argon2idCost(hash string) (memory, passes uint32, threads uint8) {
	var version int
	_, _ = fmt.Sscanf(hash, "$argon2id$v=%d$m=%d,t=%d,p=%d$", &version, &memory, &passes, &threads)
	return memory, passes, threads
}
