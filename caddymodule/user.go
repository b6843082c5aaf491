package caddymodule

import (
	"fmt"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
)

// User is a person who signs in with a password.
type User struct {
	// The name to sign in with, and the `sub` of tokens. Required.
	Name string `json:"name,omitempty"`

	// The password's hash as `caddy hash-password --algorithm argon2id` prints it, or
	// one of bcrypt. Required. Placeholders are supported.
	PasswordHash string `json:"password_hash,omitempty"`

	// The key of the person's authenticator app (RFC 6238), as `caddy fhir-totp`
	// makes it: base32 of at least 16 bytes. Who has one is asked for a code
	// after the password, and after an identity provider too that signs them in
	// as this user. Default: no second factor. Placeholders are supported.
	TOTPSecret string `json:"totp_secret,omitempty"`

	// The claim `name`: what to call the person. Default: none.
	DisplayName string `json:"display_name,omitempty"`

	// The claim `email`. Where a provider links by it (`link_email`), a verified
	// one is one user's alone. Default: none.
	Email string `json:"email,omitempty"`

	// The claim `email_verified`. Default: false.
	EmailVerified bool `json:"email_verified,omitempty"`

	// The claim `phone_number`, in E.164 form: `+15550100`. Default: none.
	Phone string `json:"phone,omitempty"`

	// The person's own FHIR resource, `Practitioner/alice`, below the FHIR base
	// (SMART App Launch 2.2, `fhirUser`). Its type is Patient, Practitioner,
	// PractitionerRole, RelatedPerson or Person. Default: none.
	FHIRUser string `json:"fhir_user,omitempty"`

	// Further claims of OpenID Connect Core §5.1, such as `family_name`,
	// `birthdate` or, of an address, `address.locality`. Clients get them by the
	// scopes `profile`, `phone` and `address`. Default: none.
	Claims map[string]string `json:"claims,omitempty"`

	// Keep the person out: no sign-in, and what they were given ends. Default:
	// false.
	Disabled bool `json:"disabled,omitempty"`
}

// users resolves the placeholders of the users' secrets, here and not earlier,
// so that the configuration that Caddy shows and saves holds none.
func (a *App) users() ([]people.User, error) {
	repl := caddy.NewReplacer()
	users := make([]people.User, len(a.Users))
	for i, u := range a.Users {
		hash, err := resolveSecret(repl, u.PasswordHash)
		if err == nil {
			err = checkHash(hash)
		}
		if err != nil {
			return nil, fmt.Errorf("user %q: password_hash: %w", u.Name, err)
		}
		if isCostly(hash) {
			a.logger.Warn("password hash takes long to compare, and anybody can have it compared; make another with: "+hashCommand, "user", u.Name)
		}
		totpSecret, err := resolveSecret(repl, u.TOTPSecret)
		if err != nil {
			return nil, fmt.Errorf("user %q: totp_secret: %w", u.Name, err)
		}
		users[i] = u.withSecrets(hash, totpSecret)
	}
	return users, nil
}

// withSecrets is the user as package authorize has them.
func (u *User) withSecrets(hash, totpSecret string) people.User {
	return people.User{
		ID: u.Name, PasswordHash: hash, TOTPSecret: totpSecret, Name: u.DisplayName, Email: u.Email,
		EmailVerified: u.EmailVerified, Phone: u.Phone, FHIRUser: u.FHIRUser, Disabled: u.Disabled,
		Claims: u.Claims,
	}
}
