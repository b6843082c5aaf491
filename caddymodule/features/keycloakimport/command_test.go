package keycloakimport

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/fhirapp"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/stores/file"
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/stores/memory"
)

// converted is the output of fhir-convert.
type converted struct {
	caddyfile, summary string
	app                fhirapp.App
}

// convertRealm converts a realm. It fails the test if the resulting Caddyfile cannot be adapted and loaded.
func convertRealm(t *testing.T, realm string) (result converted) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "realm.json")
	if err := os.WriteFile(file, []byte(realm), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, summary bytes.Buffer
	if err := convertKeycloak(&out, &summary, file, "https://fhir.hospital.example"); err != nil {
		t.Fatal(err)
	}
	result.caddyfile, result.summary = out.String(), summary.String()
	adapter := caddyfile.Adapter{ServerType: httpcaddyfile.ServerType{}}
	adapted, _, err := adapter.Adapt(out.Bytes(), nil)
	if err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	var config caddy.Config
	if err := json.Unmarshal(adapted, &config); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(config.AppsRaw["fhir"], &result.app); err != nil {
		t.Fatal(err)
	}
	if _, err := gatewaytest.Provision(t, &config); err != nil {
		t.Fatalf("does not load: %v\n%s", err, &out)
	}
	return result
}

// The output of fhir-convert can be loaded, and users can sign in with the same passwords.
func TestConvertKeycloak(t *testing.T) {
	t.Parallel()
	export, err := os.ReadFile("testdata/general.json")
	if err != nil {
		t.Fatal(err)
	}
	app := convertRealm(t, string(export)).app
	if len(app.Users) != 2 || len(app.Clients) != 3 {
		t.Fatalf("%d users, %d clients", len(app.Users), len(app.Clients))
	}
	for _, user := range app.Users {
		if same, err := (fhirapp.Passwords{}).Compare([]byte(user.PasswordHash), []byte("pw")); !same || err != nil {
			t.Errorf("password of %s: %v, %v", user.Name, same, err)
		}
		if same, _ := (fhirapp.Passwords{}).Compare([]byte(user.PasswordHash), []byte("pw2")); same {
			t.Errorf("any password of %s", user.Name)
		}
	}
}

// Each security setting of a Keycloak client is converted, or the client is omitted and the summary reports this.
func TestConvertKeycloakClients(t *testing.T) {
	t.Parallel()
	const (
		confidential = `"secret": "0123456789abcdef0123456789abcdef", "redirectUris": ["https://app.example/cb"]`
		public       = `"publicClient": true, "redirectUris": ["https://app.example/cb"]`
		keyed        = `"clientAuthenticatorType": "client-jwt", "redirectUris": ["https://app.example/cb"], "attributes": {"use.jwks.string": "true", `
		key          = `"jwks.string": "{\n  \"keys\": [{\"kty\": \"EC\", \"crv\": \"P-256\", \"kid\": \"1\", \"x\": \"MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4\", \"y\": \"4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM\"}]}"`
	)
	attribute := func(name, value string) string {
		return confidential + `, "attributes": {"` + name + `": "` + value + `"}`
	}
	for _, tt := range []struct{ name, members, want, summary string }{ // want is a line in the client's block; "" if the client is omitted
		{"mTLS", `"clientAuthenticatorType": "client-x509", ` + confidential, "", "unsupported authentication method client-x509"},
		{"a shared secret in a JWT", `"clientAuthenticatorType": "client-secret-jwt", ` + confidential, "", "unsupported authentication method client-secret-jwt"},
		{"an authenticator of a later version", `"clientAuthenticatorType": "federated-jwt", ` + confidential, "", "unsupported authentication method federated-jwt"},
		{"tokens bound to a certificate", attribute("tls.client.certificate.bound.access.tokens", "true"), "", "mTLS"},
		{"DPoP", attribute("dpop.bound.access.tokens", "true"), "", "DPoP"},
		{"DPoP of a public client", public + `, "attributes": {"dpop.bound.access.tokens": "true"}`, "", "DPoP"},
		{"DPoP off", attribute("dpop.bound.access.tokens", "false"), "secret ", ""},
		{"required PKCE", attribute("pkce.code.challenge.method", "S256"), "pkce required", ""},
		{"required PAR", attribute("require.pushed.authorization.requests", "true"), "par required", ""},
		{"required request objects with keys", keyed + key + `, "request.object.required": "request only"}`, "request_objects required", ""},
		{"required request objects without keys", attribute("request.object.required", "request or request_uri"), "", "request objects"},
		{"required request_uri", keyed + key + `, "request.object.required": "request_uri only"}`, "", "request_uri"},
		{"shorter access tokens", attribute("access.token.lifespan", "60"), "", "access.token.lifespan is 60 seconds"},
		{"longer access tokens", attribute("access.token.lifespan", "3000"), "secret ", ""},
		{"access tokens as long as the session", attribute("access.token.lifespan", "-1"), "secret ", ""},
		{"shorter sessions", attribute("client.session.idle.timeout", "60"), "", "client.session.idle.timeout"},
		{"shorter offline access", attribute("client.offline.session.max.lifespan", "60"), "", "client.offline.session.max.lifespan"},
		{"a lifetime that is not a number", attribute("access.token.lifespan", "1h"), "", "access.token.lifespan"},
		{"a minimum acr", attribute("minimum.acr.value", "2"), "", "a minimum acr is not converted"},
		{"a default acr", attribute("default.acr.values", "2"), "", "default acr values are not converted"},
		{"encrypted ID tokens", attribute("id.token.encrypted.response.alg", "RSA-OAEP"), "", "encrypted"},
		{"signed userinfo", attribute("user.info.response.signature.alg", "RS256"), "", "signed userinfo responses"},
		{"a rotated secret", attribute("client.secret.rotated", "x"), "", "a secret rotation is in progress"},
		{"ID tokens of ES256", attribute("id.token.signed.response.alg", "ES256"), "id_token_alg ES256", ""},
		{"ID tokens of PS256", attribute("id.token.signed.response.alg", "PS256"), "secret ", "RS256 instead of PS256"},
		{"a flow of its own", confidential + `, "authenticationFlowBindingOverrides": {"browser": "1"}`, "", "an authentication flow override (browser)"},
		{"a setting of a later version", attribute("quantum.safe", "true"), "secret ", "quantum.safe (true)"},
		{"authorization services", confidential + `, "authorizationServicesEnabled": true`, "secret ", "authorization services"},
		{"no refresh tokens", confidential + `, "attributes": {"use.refresh.tokens": "false"}, "optionalClientScopes": ["offline_access", "patient/*.rs"]`, "scope patient/*.rs", "scope offline_access omitted"},
		{"keys in the export", keyed + key + `}`, "jwks `{\"keys\":[{", ""},
		{"keys that are not JSON", keyed + `"jwks.string": "{"}`, "", "jwks.string is not JSON"},
		{"keys that are none", keyed + `"jwks.string": "{\"keys\": 1}"}`, "", "invalid configuration"},
		{"a private key", keyed + strings.Replace(key, `\"x\"`, `\"d\": \"AQ\", \"x\"`, 1) + `}`, "", "private key"},
		{"keys at an address that is switched off", keyed + key + `, "use.jwks.url": "false", "jwks.url": "https://old.example/jwks"}`, "jwks `{", ""},
		{"keys over http", `"clientAuthenticatorType": "client-jwt", ` + public[len(`"publicClient": true, `):] + `, "attributes": {"use.jwks.url": "true", "jwks.url": "http://app.example/jwks"}`, "", "invalid configuration"},
		{"a private-use scheme", `"publicClient": true, "redirectUris": ["com.example.app:/cb"]`, "native", ""},
		{"a loopback address", `"publicClient": true, "redirectUris": ["http://127.0.0.1/cb"]`, "native", ""},
		{"a loopback address with a port", `"publicClient": true, "redirectUris": ["http://127.0.0.1:3000/cb"]`, "native", "http://127.0.0.1:3000/cb matches any port"},
		{"a private-use scheme after signing out", public + `, "attributes": {"post.logout.redirect.uris": "com.example.app:/bye"}`, "native", ""},
		{"a scheme that no app can own", `"publicClient": true, "redirectUris": ["app:/cb", "https://app.example/cb"]`, "redirect_uri https://app.example/cb", "redirect_uri omitted: \"app:/cb\""},
		{"localhost", `"publicClient": true, "redirectUris": ["http://localhost:3000/cb"]`, "redirect_uri http://localhost:3000/cb", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := convertRealm(t, `{"realm": "r", "accessTokenLifespan": 300, "ssoSessionIdleTimeout": 1800, "ssoSessionMaxLifespan": 36000,
				"offlineSessionIdleTimeout": 2592000, "clients": [{"clientId": "app", `+tt.members+`}]}`)
			if omitted := len(got.app.Clients) == 0; omitted != (tt.want == "") || !strings.Contains(got.caddyfile, "\t\t\t"+tt.want) && !omitted {
				t.Errorf("want %q in:\n%s", tt.want, got.caddyfile)
			}
			if noted := strings.Contains(got.summary, ": client app: "); noted != (tt.summary != "") || !strings.Contains(got.summary, tt.summary) {
				t.Errorf("want %q in:\n%s", tt.summary, got.summary)
			}
		})
	}
}

// No user can sign in with weaker authentication than at Keycloak.
func TestConvertKeycloakUsers(t *testing.T) {
	t.Parallel()
	const password = `{"type": "password", "secretData": "{\"value\":\"jcEEUL3fAcLzFjVIxBKirUNAI69I6YnHlHXhLVjaBoc=\",\"salt\":\"92FVuq1Kja6jwxqHILxgKw==\"}",
		"credentialData": "{\"hashIterations\":5,\"algorithm\":\"argon2\",\"additionalParameters\":{\"memory\":[\"7168\"],\"type\":[\"id\"],\"version\":[\"1.3\"],\"parallelism\":[\"1\"]}}"}`
	otp := func(digits string) string {
		return `{"type": "otp", "secretData": "{\"value\":\"abcdefghijklmnopqrst\"}", "credentialData": "{\"subType\":\"totp\",\"digits\":` + digits + `,\"period\":30,\"algorithm\":\"HmacSHA1\"}"}`
	}
	ada := func(members string, credentials ...string) string {
		return `{"username": "ada", "enabled": true, ` + members + `"credentials": [` + strings.Join(append([]string{password}, credentials...), ", ") + `]}`
	}
	for _, tt := range []struct {
		name, realm, users string
		want               string // names of the converted users
		summary            string
	}{
		{"a password", "", ada(""), "ada", ""},
		{"an authenticator app", "", ada("", otp("6")), "ada", ""},
		{"an authenticator app of eight digits", "", ada("", otp("8")), "", "the password alone would be sufficient"},
		{"a passkey", "", ada("", `{"type": "webauthn"}`), "", "the password alone would be sufficient"},
		{"recovery codes", "", ada("", `{"type": "recovery-authn-codes"}`), "", "the password alone would be sufficient"},
		{"a passkey and an authenticator app", "", ada("", `{"type": "webauthn"}`, otp("6")), "ada", "passkey omitted"},
		{"a first password to be changed", "", ada(`"requiredActions": ["UPDATE_PASSWORD"], `), "", "UPDATE_PASSWORD"},
		{"a second factor to be set up", "", ada(`"requiredActions": ["CONFIGURE_TOTP"], `), "", "CONFIGURE_TOTP"},
		{"an address to be verified", `"verifyEmail": true, `, ada(`"email": "ada@h.example", `), "", "must verify their e-mail address"},
		{"a directory", "", ada(`"federationLink": "1", `), "", "directory"},
		{"an attribute", "", ada(`"attributes": {"department": ["icu"], "fhirUser": ["Practitioner/ada"]}, `), "ada", "user ada: attribute omitted: department"},
		{"roles", "", ada(`"realmRoles": ["default-roles-r", "physician"], "clientRoles": {"ehr": ["admin"], "account": ["manage-account"]}, `), "ada", "user ada: roles omitted: physician, ehr/admin"},
		{"roles of a group", `"groups": [{"path": "/a", "subGroups": [{"path": "/a/b", "realmRoles": ["physician"]}]}], `, ada(""), "ada", "roles of group /a/b omitted: physician"},
		{"the name of a client", `"clients": [{"clientId": "ada", "publicClient": true, "redirectUris": ["https://app.example/cb"]}], `, ada(""), "", "a client has this name"},
		{"the name of a client that is omitted", `"clients": [{"clientId": "ada", "protocol": "saml"}], `, ada(""), "ada", "client ada: unsupported protocol saml"},
		{"a name twice", "", ada("") + ", " + ada(""), "ada", "user ada: duplicate user name"},
		{"a name in another case", "", ada("") + ", " + strings.Replace(ada(""), `"ada"`, `"ADA"`, 1), "ada", "user ADA: duplicate user name: Keycloak ignores case"},
		{"a hash that this server cannot read", "", strings.Replace(ada(""), `\"7168\"`, `\"x\"`, 1), "", "invalid configuration"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := convertRealm(t, `{"realm": "r", `+tt.realm+`"users": [`+tt.users+`]}`)
			var names []string
			for _, user := range got.app.Users {
				names = append(names, user.Name)
			}
			if strings.Join(names, " ") != tt.want || !strings.Contains(got.summary, tt.summary) {
				t.Errorf("want %q and %q, got %q and:\n%s", tt.want, tt.summary, names, got.summary)
			}
			if tt.want != "" && !strings.Contains(got.summary, "it is case-sensitive") {
				t.Errorf("nothing about the case of names in:\n%s", got.summary)
			}
		})
	}
}

func TestConvertKeycloakRealm(t *testing.T) {
	t.Parallel()
	const (
		app    = `"clients": [{"clientId": "app", "publicClient": true, "redirectUris": ["https://app.example/cb"], "optionalClientScopes": ["offline_access", "patient/*.rs"]}]`
		gate   = `"scopeMappings": [{"clientScope": "offline_access", "roles": ["offline_access"]}], "defaultRole": {"name": "default-roles-r"}, `
		roles  = `"roles": {"realm": [{"name": "default-roles-r", "composites": {"realm": ["offline_access"]}}]}, `
		second = `"browserFlow": "b", "authenticationFlows": [{"alias": "b", "authenticationExecutions": [{"authenticator": "auth-cookie", "requirement": "ALTERNATIVE"}, {"flowAlias": "forms", "requirement": "ALTERNATIVE"}]},
			{"alias": "forms", "authenticationExecutions": [{"authenticator": "auth-username-password-form", "requirement": "REQUIRED"}, {"flowAlias": "2", "requirement": "CONDITIONAL"}]},
			{"alias": "2", "authenticationExecutions": [{"authenticator": "conditional-user-configured", "requirement": "REQUIRED"}, {"authenticator": "auth-otp-form", "requirement": "ALTERNATIVE"}]}], `
	)
	for _, tt := range []struct{ name, realm, want, summary string }{
		{"lifetimes", `"accessTokenLifespan": 300, "ssoSessionMaxLifespan": 36000, "ssoSessionIdleTimeout": 36000, `, "access_token_lifetime 5m0s\n\t\tsession_lifetime 10h0m0s\n", "refresh_token_lifetime has this server's default"},
		{"an idle timeout", `"ssoSessionMaxLifespan": 36000, "ssoSessionIdleTimeout": 1800, `, "session_lifetime 10h0m0s\n\t\tsession_idle 30m0s\n", ""},
		{"offline access", `"offlineSessionMaxLifespanEnabled": true, "offlineSessionMaxLifespan": 864000, "offlineSessionIdleTimeout": 86400, `, "refresh_token_lifetime 240h0m0s\n\t\trefresh_token_idle_lifetime 24h0m0s\n", ""},
		{"an idle timeout beyond the lifetime", `"offlineSessionMaxLifespanEnabled": true, "offlineSessionMaxLifespan": 86400, "offlineSessionIdleTimeout": 864000, `, "refresh_token_idle_lifetime 24h0m0s\n", "shorter than Keycloak's 240h0m0s"},
		{"lifetimes beyond the maximum", `"accessTokenLifespan": 864000, `, "access_token_lifetime 24h0m0s\n", "access_token_lifetime is limited to 24h0m0s"},
		{"an unlimited lifetime", `"accessTokenLifespan": -1, `, "", "access_token_lifetime has this server's default"},
		{"a scope by role", gate, "\t\t\tscope patient/*.rs\n", "scope offline_access omitted: Keycloak restricts it to a role"},
		{"a scope by everybody's role", gate + roles, "\t\t\tscope offline_access patient/*.rs\n", ""},
		{"scope of a role that a user lacks", gate + roles + `"users": [{"username": "ada"}], `, "\t\t\tscope patient/*.rs\n", "scope offline_access omitted"},
		{"a scope by a role of a client", `"clientScopeMappings": {"ehr": [{"clientScope": "patient/*.rs", "roles": ["physician"]}]}, `, "\t\t\tscope offline_access\n", "scope patient/*.rs omitted"},
		{"a second factor if there is one", second, "\t\t\tscope offline_access patient/*.rs\n\t\t}", ""},
		{"a second factor of everybody", strings.Replace(second, `"CONDITIONAL"`, `"REQUIRED"`, 1), "\t\t\tacr mfa\n", "the browser flow requires a second factor"},
		{"a second factor by another condition", strings.Replace(second, "conditional-user-configured", "conditional-user-role", 1), "\t\t\tacr mfa\n", "step conditional-user-role of the browser flow is not supported"},
		{"a step that is switched off", strings.Replace(second, `"CONDITIONAL"`, `"DISABLED"`, 1), "\t\t\tscope offline_access patient/*.rs\n\t\t}", ""},
		{"a client policy", `"clientPolicies": {"policies": [{"name": "fapi", "enabled": true, "profiles": ["fapi-2"]}]}, `, "", "omitted: client app: the client policy fapi"},
		{"a client policy that is switched off", `"clientPolicies": {"policies": [{"name": "fapi", "profiles": ["fapi-2"]}]}, `, "client app {", ""},
		{"an identity provider", `"identityProviders": [{"alias": "national"}], `, "", "identity provider national omitted"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := convertRealm(t, `{"realm": "r", `+tt.realm+app+`}`)
			if !strings.Contains(got.caddyfile, tt.want) || !strings.Contains(got.summary, tt.summary) {
				t.Errorf("want %q and %q in:\n%s\n%s", tt.want, tt.summary, got.caddyfile, got.summary)
			}
			for line := range strings.SplitSeq(strings.TrimSpace(got.summary), "\n") {
				if !strings.Contains(strings.ToLower(got.caddyfile), strings.ToLower(line)) {
					t.Errorf("no comment contains %q", line)
				}
			}
		})
	}
}

func TestConvertKeycloakRefuses(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, file, issuer string }{
		{"no issuer", "testdata/general.json", ""},
		{"no file", "testdata/none.json", "https://fhir.hospital.example"},
	} {
		if err := convertKeycloak(io.Discard, io.Discard, tt.file, tt.issuer); err == nil {
			t.Error(tt.name)
		}
	}
}

// Users and clients are omitted if their names cannot be used as sub.
func TestConvertNames(t *testing.T) {
	t.Parallel()
	converts := func(t *testing.T, realm map[string]any, head string) bool {
		t.Helper()
		export, err := json.Marshal(realm)
		if err != nil {
			t.Fatal(err)
		}
		text, _, err := Convert(export, "https://x.example", checkCaddyfile)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(text, "\n\t\t"+head+" ")
	}
	password := map[string]any{
		"type": "password", "secretData": `{"value":"AAAA","salt":"AAAA"}`,
		"credentialData": `{"hashIterations":5,"algorithm":"argon2","additionalParameters":{"hashLength":["32"],"memory":["7168"],"type":["id"],"version":["1.3"],"parallelism":["1"]}}`,
	}
	for kind, takes := range map[string]func(t *testing.T, name string) bool{
		"user": func(t *testing.T, name string) bool {
			return converts(t, map[string]any{"realm": "r", "users": []any{map[string]any{"username": name, "enabled": true, "credentials": []any{password}}}}, "user")
		},
		"client": func(t *testing.T, name string) bool {
			return converts(t, map[string]any{"realm": "r", "clients": []any{map[string]any{"clientId": name, "publicClient": true, "redirectUris": []string{"https://x.example/cb"}}}}, "client")
		},
	} {
		t.Run(kind, func(t *testing.T) {
			for what, name := range gatewaytest.ValidNames {
				if !takes(t, name) {
					t.Errorf("%s is omitted", what)
				}
			}
			for _, bad := range []map[string]string{gatewaytest.InvalidNames, gatewaytest.ReservedNames} {
				for _, what := range slices.Sorted(maps.Keys(bad)) {
					if takes(t, bad[what]) {
						t.Errorf("%s is accepted", what)
					}
				}
			}
		})
	}
}

// requestObjects registers the option of a feature that these tests do not import.
type requestObjects struct{}

func init() { caddy.RegisterModule(requestObjects{}) }

func (requestObjects) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "fhir.client.test_request_objects", New: func() caddy.Module { return new(requestObjects) }}
}

func (requestObjects) Subdirectives() (fields option.Block, repeatable []string) {
	return option.Block{"request_objects": option.SingleValue("required", new(bool))}, nil
}

func (requestObjects) ConfigureClient(*client.Client) {}

func TestMain(m *testing.M) { os.Exit(gatewaytest.Main(m)) }
