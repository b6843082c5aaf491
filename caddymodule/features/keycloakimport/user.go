package keycloakimport

import (
	"cmp"
	"encoding/base32"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/namecheck"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/totp"
)

var (
	phoneAttributes    = []string{"phoneNumber", "phone_number"}
	fhirUserAttributes = []string{"fhirUser", "fhir_user", "fhirUserReference"}
)

// users writes the blocks of users, except service accounts, which belong to clients.
func (c *conversion) users() {
	for _, u := range c.realm.Users {
		if u.ServiceAccount != "" {
			continue
		}
		hash, err := u.passwordHash()
		reason := c.unusable(u)
		if reason == "" && err != nil {
			reason = err.Error()
		}
		if c.add("user", u.Username, reason, func() { c.user(u, hash) }) {
			c.userNames[strings.ToLower(u.Username)] = true
		}
	}
	if len(c.userNames) > 0 {
		c.changed("people sign in by the name as it stands here: its case counts, and an e-mail address is not a name")
	}
}

// unusable returns the reason why a user cannot be converted or could sign in with weaker authentication, or "".
func (c *conversion) unusable(u user) string {
	switch name := u.Username; {
	case name == "" || isReplaced(name):
		return "the name is empty, or has braces"
	case namecheck.CheckConfigured(name) != nil:
		return fmt.Sprintf("the name, which is the sub of tokens here, %v", namecheck.CheckConfigured(name))
	case c.clientIDs[name]:
		return "a client has this name: their tokens would have the same sub"
	case c.userNames[strings.ToLower(name)]:
		return "another user has this name; Keycloak ignores its case"
	case u.FederationLink != "":
		return "they come from a directory, which would no longer decide about them"
	case len(u.Federated) > 0 && !u.has("password"):
		return fmt.Sprintf("they sign in by %s; name it in an idp block", u.Federated[0].Provider)
	case len(u.Required) > 0:
		return "Keycloak lets them in after the required actions " + strings.Join(u.Required, ", ")
	case c.realm.VerifyEmail && !u.EmailVerified:
		return "Keycloak lets them in after they have verified their e-mail address"
	}
	return c.lostFactor(u)
}

func (u user) has(kind string) bool {
	return slices.ContainsFunc(u.Credentials, func(held credential) bool { return held.Type == kind })
}

// lostFactor returns the reason why a user with a second factor could sign in with the password alone, or "".
func (c *conversion) lostFactor(u user) (reason string) {
	for _, held := range u.Credentials {
		if held.Type == "password" {
			continue
		}
		err := fmt.Errorf("it is a credential of type %s", held.Type)
		if held.Type == "otp" {
			_, err = held.otpKey(c.realm.OTPAlgorithm)
		}
		if err == nil {
			return ""
		}
		reason = fmt.Sprintf("their second factor cannot be converted, and the password alone would be enough: %v", err)
	}
	return reason
}

func (c *conversion) user(u user, hash string) {
	c.option("password_hash", nil, hash)
	c.factors(u)
	c.option("name", nil, strings.TrimSpace(u.FirstName+" "+u.LastName))
	email := c.taken("email", people.CheckEmail, u.Email)
	if u.EmailVerified && len(email) > 0 {
		email = append(email, "verified")
	}
	c.line("email", email...)
	c.option("phone", nil, first(u.Attributes, phoneAttributes...))
	c.option("fhir_user", people.CheckFHIRUser, first(u.Attributes, fhirUserAttributes...))
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
	for _, federated := range u.Federated {
		c.changed("link to %s omitted; an idp block with \"link email\" makes it anew", federated.Provider)
	}
	for _, name := range slices.Sorted(maps.Keys(u.Attributes)) {
		if !slices.Contains(slices.Concat(phoneAttributes, fhirUserAttributes), name) {
			c.changed("attribute omitted: %s", name)
		}
	}
	if roles := c.realm.notableRoles(u.RealmRoles, u.ClientRoles); len(roles) > 0 {
		c.changed("roles omitted: %s; use a group, and scope_limit", strings.Join(roles, ", "))
	}
}

// first returns the first value of the first attribute in names.
func first(attributes map[string][]string, names ...string) string {
	for _, name := range names {
		if values := attributes[name]; len(values) > 0 {
			return strings.TrimSpace(values[0])
		}
	}
	return ""
}

// factors writes the key of the first authenticator app with the parameters that all apps support.
func (c *conversion) factors(u user) {
	written := false
	for _, held := range u.Credentials {
		switch held.Type {
		case "password":
		case "otp":
			key, err := held.otpKey(c.realm.OTPAlgorithm)
			switch {
			case err != nil:
				c.changed("authenticator app omitted: %v", err)
			case written:
				c.changed("further authenticator app omitted; it can be enrolled again at /oauth2/account")
			default:
				c.option("totp_secret", nil, key)
				written = true
			}
		case "webauthn", "webauthn-passwordless":
			c.changed("passkey omitted: it is bound to Keycloak's address; it can be enrolled again at /oauth2/account")
		default:
			c.changed("credential omitted: type %s", held.Type)
		}
	}
}

// otpKey returns the key of an authenticator app in base32. Unless its encoding is base32,
// Keycloak uses the bytes of the stored text.
func (c credential) otpKey(defaultAlgorithm string) (string, error) {
	data, err := c.decode()
	if err != nil {
		return "", err
	}
	algorithm := cmp.Or(data.Algorithm, defaultAlgorithm, "HmacSHA1")
	if data.SubType != "totp" || cmp.Or(data.Digits, 6) != 6 || cmp.Or(data.Period, 30) != 30 || algorithm != "HmacSHA1" {
		return "", fmt.Errorf("it is %s with %d digits, %d s and %s; here they are totp with 6 digits, 30 s and HmacSHA1", data.SubType, data.Digits, data.Period, algorithm)
	}
	key := strings.TrimRight(data.Value, "=")
	if data.Encoding != "BASE32" {
		key = base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString([]byte(data.Value))
	}
	return key, totp.CheckSecret(key)
}

// passwordHash returns the password hash in the format of Argon2's reference implementation, or
// the reason why this server cannot compare it.
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
