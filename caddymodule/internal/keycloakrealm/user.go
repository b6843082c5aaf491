package keycloakrealm

import (
	"cmp"
	"encoding/base32"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/subject"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/totp"
)

// users writes the blocks of people, but for service accounts, which belong to clients and sign nobody in.
func (c *conversion) users() {
	for _, u := range c.realm.Users {
		hash, err := u.passwordHash()
		switch {
		case u.ServiceAccount != "":
		case u.Username == "" || isReplaced(u.Username):
			c.remark("the user %s: the name is empty, or has braces", u.Username)
		case subject.CheckConfigured(u.Username) != nil:
			c.remark("the user %s: the name, which is the sub of tokens here, %v", u.Username, subject.CheckConfigured(u.Username))
		case err != nil && len(u.Federated) > 0:
			c.remark("the user %s: they sign in by %s; name it in an idp block", u.Username, u.Federated[0].Provider)
		case err != nil:
			c.remark("the user %s: %v", u.Username, err)
		default:
			c.within("user "+quote(u.Username), func() { c.user(u, hash) })
		}
	}
}

func (c *conversion) user(u user, hash string) {
	c.option("password_hash", nil, hash)
	c.factors(u)
	c.option("name", nil, strings.TrimSpace(u.FirstName+" "+u.LastName))
	email := c.taken("email", authorize.CheckEmail, u.Email)
	if u.EmailVerified && len(email) > 0 {
		email = append(email, "verified")
	}
	c.line("email", email...)
	c.option("phone", nil, first(u.Attributes, "phoneNumber", "phone_number"))
	c.option("fhir_user", authorize.CheckFHIRUser, first(u.Attributes, "fhirUser", "fhir_user", "fhirUserReference"))
	var groups []string
	for _, path := range u.Groups {
		name := groupName(path)
		if c.sharedNames[name] {
			name = strings.TrimPrefix(path, "/")
		}
		groups = append(groups, name)
	}
	c.option("group", nil, groups...)
	c.option("claim given_name", nil, u.FirstName)
	c.option("claim family_name", nil, u.LastName)
	if !u.Enabled {
		c.raw("disabled")
	}
	if len(u.Required) > 0 {
		c.remark("the required actions %s", strings.Join(u.Required, ", "))
	}
	for _, federated := range u.Federated {
		c.remark("the link to %s; an idp block with \"link email\" makes it anew", federated.Provider)
	}
}

// first returns the first value of an attribute with one of the names.
func first(attributes map[string][]string, names ...string) string {
	for _, name := range names {
		if values := attributes[name]; len(values) > 0 {
			return strings.TrimSpace(values[0])
		}
	}
	return ""
}

// factors writes the key of the first authenticator app that has the parameters that all apps support.
func (c *conversion) factors(u user) {
	written := false
	for _, held := range u.Credentials {
		switch held.Type {
		case "password":
		case "otp":
			key, err := c.otpKey(held)
			switch {
			case err != nil:
				c.remark("an authenticator app: %v", err)
			case written:
				c.remark("a further authenticator app; it can be enrolled again at /oauth2/account")
			default:
				c.option("totp_secret", nil, key)
				written = true
			}
		case "webauthn", "webauthn-passwordless":
			c.remark("a passkey, which is bound to Keycloak's address; it can be enrolled again at /oauth2/account")
		default:
			c.remark("a credential of type %s", held.Type)
		}
	}
}

// otpKey is the key of an authenticator app in base32. Keycloak uses the bytes of the text that it
// stores, unless it says that they are base32.
func (c *conversion) otpKey(held credential) (string, error) {
	data, err := held.decode()
	if err != nil {
		return "", err
	}
	algorithm := cmp.Or(data.Algorithm, c.realm.OTPAlgorithm, "HmacSHA1")
	if data.SubType != "totp" || cmp.Or(data.Digits, 6) != 6 || cmp.Or(data.Period, 30) != 30 || algorithm != "HmacSHA1" {
		return "", fmt.Errorf("it is %s with %d digits, %d s and %s; here they are totp with 6 digits, 30 s and HmacSHA1", data.SubType, data.Digits, data.Period, algorithm)
	}
	key := strings.TrimRight(data.Value, "=")
	if data.Encoding != "BASE32" {
		key = base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString([]byte(data.Value))
	}
	return key, totp.CheckSecret(key)
}

// passwordHash is the hash of the password in the form of Argon2's reference implementation. The
// error says why there is none that can be compared here.
func (u user) passwordHash() (string, error) {
	i := slices.IndexFunc(u.Credentials, func(held credential) bool { return held.Type == "password" })
	if i < 0 {
		return "", errors.New("they have no password in the export; export with users")
	}
	data, err := u.Credentials[i].decode()
	if err != nil {
		return "", fmt.Errorf("their password's hash cannot be read: %w", err)
	}
	parameter := func(name string) string { return first(data.Parameters, name) }
	if data.Algorithm != "argon2" || parameter("type") != "id" || parameter("version") != "1.3" {
		return "", fmt.Errorf("their password's hash is %s, not argon2id; Keycloak makes one at their next sign-in there, if the realm's password policy says so", cmp.Or(data.Algorithm, "unknown"))
	}
	for _, part := range []string{data.Salt, data.Value} {
		if _, err := base64.StdEncoding.DecodeString(part); err != nil {
			return "", fmt.Errorf("their password's hash cannot be read: %w", err)
		}
	}
	return fmt.Sprintf("$argon2id$v=19$m=%s,t=%d,p=%s$%s$%s", parameter("memory"), data.HashIterations, parameter("parallelism"),
		strings.TrimRight(data.Salt, "="), strings.TrimRight(data.Value, "=")), nil
}
