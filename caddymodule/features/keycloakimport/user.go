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

// writeUsers writes the blocks of users. It omits service accounts, which belong to clients.
func (c *converter) writeUsers() {
	for _, u := range c.realm.Users {
		if u.ServiceAccount != "" {
			continue
		}
		hash, err := u.passwordHash()
		reason := c.userSkipReason(u)
		if reason == "" && err != nil {
			reason = err.Error()
		}
		if c.writeEntry("user", u.Username, reason, func() { c.writeUser(u, hash) }) {
			c.userNames[strings.ToLower(u.Username)] = true
		}
	}
	if len(c.userNames) > 0 {
		c.reportChange("users sign in with exactly their name in the Caddyfile: it is case-sensitive, and an e-mail address is not accepted instead")
	}
}

// userSkipReason returns the reason why a user cannot be converted or could sign in with weaker authentication, or "".
func (c *converter) userSkipReason(u user) string {
	switch name := u.Username; {
	case name == "" || isAlteredByCaddy(name):
		return "the name is empty or contains braces"
	case namecheck.CheckConfigured(name) != nil:
		return fmt.Sprintf("the name, which becomes the sub of tokens, %v", namecheck.CheckConfigured(name))
	case c.clientIDs[name]:
		return "a client has this name, so their tokens would have the same sub"
	case c.userNames[strings.ToLower(name)]:
		return "duplicate user name: Keycloak ignores case"
	case u.FederationLink != "":
		return "the user is managed by an external directory, which would no longer control their access"
	case len(u.IdentityLinks) > 0 && !u.hasCredential("password"):
		return fmt.Sprintf("the user signs in at %s; configure it with an idp block", u.IdentityLinks[0].Provider)
	case len(u.RequiredActions) > 0:
		return "the user has pending required actions: " + strings.Join(u.RequiredActions, ", ")
	case c.realm.VerifyEmail && !u.EmailVerified:
		return "the user must verify their e-mail address first"
	}
	return c.lostFactorReason(u)
}

func (u user) hasCredential(kind string) bool {
	return slices.ContainsFunc(u.Credentials, func(cred credential) bool { return cred.Type == kind })
}

// lostFactorReason returns the reason why a user with a second factor could sign in with the password alone, or "".
func (c *converter) lostFactorReason(u user) (reason string) {
	for _, cred := range u.Credentials {
		if cred.Type == "password" {
			continue
		}
		err := fmt.Errorf("unsupported credential type %s", cred.Type)
		if cred.Type == "otp" {
			_, err = cred.otpKey(c.realm.OTPAlgorithm)
		}
		if err == nil {
			return ""
		}
		reason = fmt.Sprintf("the second factor cannot be converted, so the password alone would be sufficient: %v", err)
	}
	return reason
}

func (c *converter) writeUser(u user, hash string) {
	c.writeOption("password_hash", nil, hash)
	c.writeFactors(u)
	c.writeOption("name", nil, strings.TrimSpace(u.FirstName+" "+u.LastName))
	email := c.acceptedWords("email", people.CheckEmail, u.Email)
	if u.EmailVerified && len(email) > 0 {
		email = append(email, "verified")
	}
	c.writeLine("email", email...)
	c.writeOption("phone", nil, firstAttribute(u.Attributes, phoneAttributes...))
	c.writeOption("fhir_user", people.CheckFHIRUser, firstAttribute(u.Attributes, fhirUserAttributes...))
	var groups []string
	for _, path := range u.Groups {
		name := groupName(path)
		if c.ambiguousGroups[name] {
			name = strings.TrimPrefix(path, "/")
		}
		groups = append(groups, name)
	}
	c.writeOption("group", nil, groups...)
	c.writeOption("claim given_name", nil, u.FirstName)
	c.writeOption("claim family_name", nil, u.LastName)
	if !u.Enabled {
		c.writeRaw("disabled")
	}
	for _, link := range u.IdentityLinks {
		c.reportChange("link to %s omitted; an idp block with \"link email\" creates it again", link.Provider)
	}
	for _, name := range slices.Sorted(maps.Keys(u.Attributes)) {
		if !slices.Contains(slices.Concat(phoneAttributes, fhirUserAttributes), name) {
			c.reportChange("attribute omitted: %s", name)
		}
	}
	if roles := c.realm.assignedRoles(u.RealmRoles, u.ClientRoles); len(roles) > 0 {
		c.reportChange("roles omitted: %s; use a group with scope_limit", strings.Join(roles, ", "))
	}
}

// firstAttribute returns the value of the first attribute in names that has one, or "".
func firstAttribute(attributes map[string][]string, names ...string) string {
	for _, name := range names {
		if values := attributes[name]; len(values) > 0 {
			return strings.TrimSpace(values[0])
		}
	}
	return ""
}

// writeFactors writes the key of the first authenticator app with parameters that all authenticator apps support.
func (c *converter) writeFactors(u user) {
	hasApp := false
	for _, cred := range u.Credentials {
		switch cred.Type {
		case "password":
		case "otp":
			key, err := cred.otpKey(c.realm.OTPAlgorithm)
			switch {
			case err != nil:
				c.reportChange("authenticator app omitted: %v", err)
			case hasApp:
				c.reportChange("additional authenticator app omitted; the user can enroll it again at /oauth2/account")
			default:
				c.writeOption("totp_secret", nil, key)
				hasApp = true
			}
		case "webauthn", "webauthn-passwordless":
			c.reportChange("passkey omitted: it is bound to Keycloak's domain; the user can enroll a new one at /oauth2/account")
		default:
			c.reportChange("unsupported credential omitted: type %s", cred.Type)
		}
	}
}

// otpKey returns the key of an authenticator app in base32. If the stored text is not encoded in base32, Keycloak uses its
// bytes as the key.
func (c credential) otpKey(defaultAlgorithm string) (string, error) {
	data, err := c.decode()
	if err != nil {
		return "", err
	}
	algorithm := cmp.Or(data.Algorithm, defaultAlgorithm, "HmacSHA1")
	if data.SubType != "totp" || cmp.Or(data.Digits, 6) != 6 || cmp.Or(data.Period, 30) != 30 || algorithm != "HmacSHA1" {
		return "", fmt.Errorf("unsupported parameters (%s, %d digits, %d s, %s): totp with 6 digits, 30 s and HmacSHA1 is required", data.SubType, data.Digits, data.Period, algorithm)
	}
	key := strings.TrimRight(data.Value, "=")
	if data.Encoding != "BASE32" {
		key = base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString([]byte(data.Value))
	}
	return key, totp.CheckSecret(key)
}

// passwordHash returns the password hash in the format of Argon2's reference implementation. If the gateway cannot verify the
// hash, the error is the reason.
func (u user) passwordHash() (string, error) {
	i := slices.IndexFunc(u.Credentials, func(cred credential) bool { return cred.Type == "password" })
	if i < 0 {
		return "", errors.New("the export contains no password for this user; export the realm with users")
	}
	data, err := u.Credentials[i].decode()
	if err != nil {
		return "", fmt.Errorf("reading the password hash: %w", err)
	}
	parameter := func(name string) string { return firstAttribute(data.Parameters, name) }
	if data.Algorithm != "argon2" || parameter("type") != "id" || parameter("version") != "1.3" {
		return "", fmt.Errorf("the password hash is %s, not argon2id; if the realm's password policy requires argon2id, Keycloak rehashes it at the user's next sign-in", cmp.Or(data.Algorithm, "unknown"))
	}
	for _, part := range []string{data.Salt, data.Value} {
		if _, err := base64.StdEncoding.DecodeString(part); err != nil {
			return "", fmt.Errorf("reading the password hash: %w", err)
		}
	}
	return fmt.Sprintf("$argon2id$v=19$m=%s,t=%d,p=%s$%s$%s", parameter("memory"), data.HashIterations, parameter("parallelism"),
		strings.TrimRight(data.Salt, "="), strings.TrimRight(data.Value, "=")), nil
}
