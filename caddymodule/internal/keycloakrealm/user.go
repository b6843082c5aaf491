package keycloakrealm

import (
	"cmp"
	"encoding/base32"
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/totp"
)

func (c conversion) users() {
	for _, u := range c.realm.Users {
		if u.ServiceAccount != "" {
			continue // belongs to a client, and signs nobody in
		}
		if reason := u.untakeable(); reason != "" {
			c.out.remark("the user %s: %s", u.Username, reason)
			continue
		}
		c.user(u)
	}
}

// untakeable says why a person cannot be taken over; "" if they can.
func (u user) untakeable() string {
	switch _, err := u.passwordHash(); {
	case u.Username == "" || isReplaced(u.Username):
		return "the name is empty, or has braces"
	case err != nil && len(u.Federated) > 0:
		return fmt.Sprintf("they sign in by %s; name it in an idp block", u.Federated[0].Provider)
	case err != nil:
		return err.Error()
	}
	return ""
}

// user writes the block of a person.
func (c conversion) user(u user) {
	hash, _ := u.passwordHash()
	c.out.within("user", u.Username, func() {
		c.out.line("password_hash", hash)
		c.otp(u)
		c.claim("name", "", strings.TrimSpace(u.FirstName+" "+u.LastName), nil)
		if u.Email != "" && len(c.taken("email", []string{u.Email}, authorize.CheckEmail)) > 0 {
			if u.EmailVerified {
				c.out.line("email", u.Email, "verified")
			} else {
				c.out.line("email", u.Email)
			}
		}
		c.claim("phone", "", first(u.Attributes, "phoneNumber", "phone_number"), nil)
		c.claim("fhir_user", "", first(u.Attributes, "fhirUser", "fhir_user", "fhirUserReference"), authorize.CheckFHIRUser)
		c.groups(u)
		c.claim("claim", "given_name", u.FirstName, nil)
		c.claim("claim", "family_name", u.LastName, nil)
		if !u.Enabled {
			c.out.raw("disabled")
		}
		c.userRest(u)
	})
}

// groups writes the groups by their names, and by their paths where a name is that of several.
func (c conversion) groups(u user) {
	var names []string
	for _, path := range u.Groups {
		name := groupName(path)
		if len(c.paths[name]) > 1 {
			name = strings.TrimPrefix(path, "/")
		}
		names = append(names, name)
	}
	c.out.words("group", c.taken("group", names, nil))
}

// userRest remarks on what has no counterpart here.
func (c conversion) userRest(u user) {
	if len(u.Required) > 0 {
		c.out.remark("the required actions %s", strings.Join(u.Required, ", "))
	}
	for _, held := range u.Credentials {
		switch held.Type {
		case "password", "otp":
		case "webauthn", "webauthn-passwordless":
			c.out.remark("a passkey, which is bound to Keycloak's address; it can be enrolled again at /oauth2/account")
		default:
			c.out.remark("a credential of type %s", held.Type)
		}
	}
	for _, federated := range u.Federated {
		c.out.remark("the link to %s; an idp block with \"link email\" makes it anew", federated.Provider)
	}
}

// passwordHash is the hash of the password in the form of Argon2's reference implementation. The
// error says why there is none that can be compared here.
func (u user) passwordHash() (string, error) {
	for _, held := range u.Credentials {
		if held.Type != "password" {
			continue
		}
		secret, data, err := held.decode()
		if err != nil {
			return "", fmt.Errorf("their password's hash cannot be read: %w", err)
		}
		return argon2id(secret, data)
	}
	return "", fmt.Errorf("they have no password in the export; export with users")
}

func argon2id(secret secretData, data credentialData) (string, error) {
	parameter := func(name string) string { return first(data.Parameters, name) }
	if data.Algorithm != "argon2" || parameter("type") != "id" || parameter("version") != "1.3" {
		return "", fmt.Errorf("their password's hash is %s, not argon2id; Keycloak makes one at their next sign-in there, if the realm's password policy says so", cmp.Or(data.Algorithm, "unknown"))
	}
	salt, err := base64.StdEncoding.DecodeString(secret.Salt)
	if err != nil {
		return "", fmt.Errorf("their password's salt cannot be read: %w", err)
	}
	key, err := base64.StdEncoding.DecodeString(secret.Value)
	if err != nil {
		return "", fmt.Errorf("their password's hash cannot be read: %w", err)
	}
	raw := base64.RawStdEncoding
	return fmt.Sprintf("$argon2id$v=19$m=%s,t=%d,p=%s$%s$%s", parameter("memory"), data.HashIterations, parameter("parallelism"),
		raw.EncodeToString(salt), raw.EncodeToString(key)), nil
}

// otp writes the key of the first authenticator app that has the parameters that all apps support.
func (c conversion) otp(u user) {
	var written bool
	for _, held := range u.Credentials {
		if held.Type != "otp" {
			continue
		}
		key, err := c.otpKey(held)
		switch {
		case err != nil:
			c.out.remark("an authenticator app: %v", err)
		case written:
			c.out.remark("a further authenticator app; it can be enrolled again at /oauth2/account")
		default:
			c.out.line("totp_secret", key)
			written = true
		}
	}
}

// otpKey is the key of an authenticator app in base32. Keycloak uses the bytes of the text that it
// stores, unless it says that they are base32.
func (c conversion) otpKey(held credential) (string, error) {
	secret, data, err := held.decode()
	if err != nil {
		return "", err
	}
	algorithm := cmp.Or(data.Algorithm, c.realm.OTPAlgorithm, "HmacSHA1")
	if data.SubType != "totp" || cmp.Or(data.Digits, 6) != 6 || cmp.Or(data.Period, 30) != 30 || algorithm != "HmacSHA1" {
		return "", fmt.Errorf("it is %s with %d digits, %d s and %s; here they are totp with 6 digits, 30 s and HmacSHA1", data.SubType, data.Digits, data.Period, algorithm)
	}
	key := strings.TrimRight(secret.Value, "=")
	if data.Encoding != "BASE32" {
		key = base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString([]byte(secret.Value))
	}
	return key, totp.CheckSecret(key)
}
