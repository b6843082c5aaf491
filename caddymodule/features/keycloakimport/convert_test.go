package keycloakimport_test

import (
	"os"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/features/keycloakimport"
)

// accept is a check that accepts all entries. The tests in command_test.go use the Caddyfile parser instead.
func accept(string) error { return nil }

const issuer = "https://fhir.hospital.example"

// The result for a realm exported by Keycloak 26.7.3 is correct. The tests in command_test.go load the result.
func TestConvert(t *testing.T) {
	t.Parallel()
	export, err := os.ReadFile("testdata/general.json")
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("testdata/general.Caddyfile")
	if err != nil {
		t.Fatal(err)
	}
	got, _, err := keycloakimport.Convert(export, issuer, accept)
	if err != nil || got != string(want) {
		t.Errorf("%v\n%s", err, got)
	}
}

func TestConvertParts(t *testing.T) {
	t.Parallel()
	const password = `{"type": "password", "secretData": "{\"value\":\"a2V5\",\"salt\":\"c2FsdA==\"}",
		"credentialData": "{\"hashIterations\":5,\"algorithm\":\"argon2\",\"additionalParameters\":{\"memory\":[\"7168\"],\"type\":[\"id\"],\"version\":[\"1.3\"],\"parallelism\":[\"1\"]}}"}`
	otp := func(data string) string {
		return `{"users": [{"username": "ada", "enabled": true, "credentials": [` + password + `,
			{"type": "otp", "secretData": "{\"value\":\"abcdefghijklmnopqrst\"}", "credentialData": "` + data + `"}]}]}`
	}
	app := func(members string) string {
		return `{"clients": [{"clientId": "app", "redirectUris": ["https://app.example/cb"], ` + members + `}]}`
	}
	tests := []struct{ name, realm, want string }{
		{"argon2i", `{"users": [{"username": "ada", "credentials": [` + strings.Replace(password, `\"id\"`, `\"i\"`, 1) + `]}]}`, "ada: the password hash is argon2, not argon2id"},
		{"a password that cannot be read", `{"users": [{"username": "ada", "credentials": [{"type": "password"}]}]}`, "ada: reading the password hash"},
		{"a person of another provider", `{"users": [{"username": "ada", "federatedIdentities": [{"identityProvider": "national"}]}]}`, "ada: the user signs in at national"},
		{"a name with a placeholder", `{"users": [{"username": "{env.HOME}", "credentials": [` + password + `]}]}`, "the name is empty or contains braces"},
		{"a name in several words", `{"users": [{"username": "ada # b", "credentials": [` + password + `]}]}`, `user "ada # b" {`},
		{"a required action", `{"users": [{"username": "ada", "requiredActions": ["UPDATE_PASSWORD"], "credentials": [` + password + `]}]}`, "the user has pending required actions: UPDATE_PASSWORD"},
		{"a passkey alone beside the password", `{"users": [{"username": "ada", "credentials": [` + password + `, {"type": "webauthn"}]}]}`, "Omitted: user ada: the second factor cannot be converted"},
		{"fhirUser", `{"users": [{"username": "ada", "attributes": {"fhirUser": ["Practitioner/ada"]}, "credentials": [` + password + `]}]}`, "fhir_user Practitioner/ada\n"},
		{"unsupported fhirUser", `{"users": [{"username": "ada", "attributes": {"fhirUser": ["Device/1"]}, "credentials": [` + password + `]}]}`, `fhir_user omitted: "Device/1"`},
		{"an app of eight digits", otp(`{\"subType\":\"totp\",\"digits\":8,\"period\":30,\"algorithm\":\"HmacSHA1\"}`), "unsupported parameters (totp, 8 digits"},
		{"an app of SHA-256", otp(`{\"subType\":\"totp\",\"digits\":6,\"period\":30,\"algorithm\":\"HmacSHA256\"}`), "HmacSHA256): totp with 6 digits"},
		{"an app by counter", otp(`{\"subType\":\"hotp\",\"digits\":6}`), "unsupported parameters (hotp"},
		{"a key in base32", strings.Replace(otp(`{\"subType\":\"totp\",\"secretEncoding\":\"BASE32\"}`), "abcdefghijklmnopqrst", "MFRGGZDFMZTWQ2LKNNWG23TPOBYXE43U", 1), "totp_secret MFRGGZDFMZTWQ2LKNNWG23TPOBYXE43U\n"},
		{"a masked secret", app(`"secret": "**********"`), "app: the client secret is masked"},
		{"no secret", app(`"publicClient": false`), "app: the client secret is masked"},
		{"keys by address", app(`"clientAuthenticatorType": "client-jwt", "attributes": {"use.jwks.url": "true", "jwks.url": "https://app.example/jwks"}`), "jwks_uri https://app.example/jwks\n"},
		{"keys by certificate", app(`"clientAuthenticatorType": "client-jwt"`), "app: the client's key is missing or a certificate"},
		{"disabled", app(`"publicClient": true, "enabled": false`), "app: the client is disabled"},
		{"takes tokens only", app(`"publicClient": true, "bearerOnly": true`), "app: bearer-only clients need no registration"},
		{"no flow", app(`"publicClient": true, "standardFlowEnabled": false`), "app: the client has neither a valid redirect URI"},
		{"a wildcard", `{"clients": [{"clientId": "app", "publicClient": true, "redirectUris": ["*"]}]}`, "app: the client has neither a valid redirect URI"},
		{"logout as the redirect URIs", app(`"publicClient": true, "attributes": {"post.logout.redirect.uris": "+"}`), "post_logout_redirect_uri https://app.example/cb\n"},
		{"consent", app(`"publicClient": true, "consentRequired": true`), "consent required\n"},
		{"the implicit flow", app(`"publicClient": true, "implicitFlowEnabled": true`), "the implicit flow is disabled"},
		{"SMART scopes", app(`"publicClient": true, "optionalClientScopes": ["launch/patient", "patient/Observation.rs", "vendor"]`), "scope vendor omitted"},
		{"Keycloak's own", `{"clients": [{"clientId": "account", "publicClient": true, "redirectUris": ["https://app.example/cb"]}]}`, "the realm does not set it\n\t}\n"},
		{"a quote after a backslash", `{"users": [{"username": "ada", "attributes": {"phoneNumber": ["1\\\" x"]}, "credentials": [` + password + `]}]}`, "phone `1\\\" x`\n"},
		{"lines in a value", `{"users": [{"username": "ada", "attributes": {"phoneNumber": ["1\ngroup admins"]}, "credentials": [` + password + `]}]}`, "phone omitted"},
		{"a group with a wide space", `{"users": [{"username": "ada", "groups": ["/a\u00a0b"], "credentials": [` + password + `]}]}`, "group \"a\u00a0b\"\n"},
		{"groups of one name", `{"users": [{"username": "ada", "groups": ["/a/admins", "/b/admins", "/c"], "credentials": [` + password + `]}]}`, "group a/admins b/admins c\n"},
		{"a variable in a remark", `{"clients": [{"clientId": "{$X", "protocol": "saml"}]}`, "client ($X: unsupported protocol"},
		{"a line end in a remark", `{"clients": [{"clientId": "a\n}", "protocol": "saml"}]}`, "client a ): unsupported protocol"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, _, err := keycloakimport.Convert([]byte(strings.Replace(tt.realm, "{", `{"realm": "general", `, 1)), issuer, accept)
			if err != nil || !strings.Contains(got, tt.want) {
				t.Errorf("%v\n%s", err, got)
			}
		})
	}
}

func TestConvertRefuses(t *testing.T) {
	t.Parallel()
	for name, export := range map[string]string{
		"not JSON": "realm", "not a realm": `{"resourceType": "Bundle"}`, "a list of realms": `[{"realm": "general"}]`,
	} {
		if got, _, err := keycloakimport.Convert([]byte(export), issuer, accept); err == nil {
			t.Errorf("%s: %s", name, got)
		}
	}
}
