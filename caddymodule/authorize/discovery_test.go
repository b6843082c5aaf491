package authorize_test

import (
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
)

func TestDiscovery(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, nil))
	for _, path := range []string{"/.well-known/openid-configuration", "/.well-known/oauth-authorization-server"} {
		r := b.Get(path)
		if r.Header.Get("Content-Type") != "application/json" || r.Header.Get("Access-Control-Allow-Origin") != "*" {
			t.Errorf("%s: header %v", path, r.Header)
		}
		m := authorizetest.Decode[map[string]any](t, r)
		if m["issuer"] != authorizetest.Issuer {
			t.Errorf("%s: issuer %v", path, m["issuer"])
		}
		for name, value := range m {
			if address, ok := value.(string); ok && !strings.HasPrefix(address, "https://") {
				t.Errorf("%s: %s = %v", path, name, value)
			}
		}
		for name, want := range map[string]string{
			"response_types_supported":              "code token",
			"grant_types_supported":                 "authorization_code implicit client_credentials",
			"code_challenge_methods_supported":      "S256",
			"id_token_signing_alg_values_supported": "RS256",
			"subject_types_supported":               "public",
		} {
			authorizetest.Equal(t, authorizetest.JoinStrings(m[name]), want, path, name)
		}
	}
}

// Every announced endpoint is served.
func TestDiscoveredEndpoints(t *testing.T) {
	t.Parallel()
	server := authorizetest.New(t, nil)
	b := authorizetest.NewBrowser(t, server)
	m := authorizetest.Decode[map[string]any](t, b.Get("/.well-known/openid-configuration"))
	for name, value := range m {
		if address, ok := value.(string); ok && name != "issuer" {
			u, err := url.Parse(address)
			if err != nil || !server.Serves(u.Path) {
				t.Errorf("%s = %s is not served", name, address)
			}
		}
	}
}

func TestDiscoveryNamesWhatClientsMayUse(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, func(c *authorize.Config) { c.Clients = c.Clients[1:3] }))
	m := authorizetest.Decode[map[string]any](t, b.Get("/.well-known/openid-configuration"))
	authorizetest.Equal(t, authorizetest.JoinStrings(m["response_types_supported"]), "code")
	authorizetest.Equal(t, authorizetest.JoinStrings(m["grant_types_supported"]), "authorization_code")
}

func TestSMARTConfiguration(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, nil))
	m := authorizetest.Decode[map[string]any](t, b.Get("/fhir/R4/.well-known/smart-configuration"))
	if m["issuer"] != authorizetest.Issuer || m["authorization_endpoint"] != authorizetest.Issuer+"/oauth2/authorize" || m["jwks_uri"] == nil {
		t.Errorf("%v", m)
	}
	// SMART App Launch 2.2, Conformance: "grant types supported at the token endpoint"
	authorizetest.Equal(t, authorizetest.JoinStrings(m["grant_types_supported"]), "authorization_code client_credentials")
	authorizetest.WantText(t, authorizetest.JoinStrings(m["capabilities"]), "sso-openid-connect")
}

func TestJWKS(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, nil))
	keys := authorizetest.Decode[jose.JSONWebKeySet](t, b.Get("/.well-known/jwks.json"))
	var algorithms []string
	for _, k := range keys.Keys {
		if !k.IsPublic() || k.KeyID == "" || k.Use != "sig" {
			t.Errorf("key %q, use %q, public %t", k.KeyID, k.Use, k.IsPublic())
		}
		algorithms = append(algorithms, k.Algorithm)
	}
	slices.Sort(algorithms)
	authorizetest.Equal(t, strings.Join(algorithms, " "), "ES256 RS256")
}

func TestUnknownPath(t *testing.T) {
	t.Parallel()
	server := authorizetest.New(t, nil)
	for _, path := range []string{"/", "/oauth2", "/oauth2/authorize/", "//oauth2/authorize", "/fhir/R4/metadata"} {
		if server.Serves(path) {
			t.Errorf("%s is served", path)
		}
		r := authorizetest.NewBrowser(t, server).Get("http://x" + path) // like a client, without an Accept header
		authorizetest.WantStatus(t, r, http.StatusNotFound, path)
		authorizetest.Equal(t, authorizetest.Body(t, r), "404 page not found\n")
	}
}

const smartConfiguration = "/fhir/R4/.well-known/smart-configuration"

// capable configures the server of a test, in addition to [authorizetest.Config].
type capable struct {
	scopes        []string // scopes of the client app
	authorizePOST bool
	ehr           bool // whether an EHR may launch apps
}

func (c capable) browser(t *testing.T) *authorizetest.Browser {
	t.Helper()
	return authorizetest.NewBrowser(t, authorizetest.New(t, func(config *authorize.Config) {
		config.AuthorizePOST, config.Records, config.Users[0].FHIRUser = c.authorizePOST, new(authorizetest.FHIRServer), "Patient/ada"
		app := config.Clients[0]
		app.Scopes = c.scopes
		app.ResponseTypes, app.LaunchURI = []string{"code"}, "https://app.example.org/launch"
		config.Clients = []client.Client{
			app, {ID: "confidential", Secret: "s3cret", GrantTypes: []string{"client_credentials"}, Scopes: []string{"demo.read"}},
			{ID: "backend", JWKS: authorizetest.PublicKeys(jose.ES384), GrantTypes: []string{"client_credentials"}},
			{ID: "ehr", Secret: "ehr-secret-0123456789", LaunchContext: c.ehr},
		}
	}))
}

// signInWithScope signs alice in to the client app. It returns nil if the scope is rejected.
func signInWithScope(b *authorizetest.Browser, scope string) *url.URL {
	request := authorizetest.Request(url.Values{"scope": {scope}})
	if response := b.Authorize(request); strings.Contains(response.Header.Get("Location"), "error=invalid_scope") {
		return nil
	}
	return b.SignInAlice(request)
}

// grantsScope reports whether the client app is granted a scope.
func grantsScope(scope string) func(*authorizetest.Browser) bool {
	return func(b *authorizetest.Browser) bool {
		answer := signInWithScope(b, scope)
		return answer != nil && slices.Contains(strings.Fields(b.Redeem(answer).Scope), scope)
	}
}

// issuesRefreshToken reports whether a scope yields a refresh token.
func issuesRefreshToken(scope string) func(*authorizetest.Browser) bool {
	return func(b *authorizetest.Browser) bool {
		answer := signInWithScope(b, scope)
		return answer != nil && b.Redeem(answer).RefreshToken != ""
	}
}

// allowsEncounterChoice reports whether a user can choose an encounter that the client receives.
func allowsEncounterChoice(b *authorizetest.Browser) bool {
	request := authorizetest.Request(url.Values{"scope": {"launch/patient launch/encounter"}})
	if response := b.Authorize(request); strings.Contains(response.Header.Get("Location"), "error=invalid_scope") {
		return false
	}
	_, sealed := b.OpenForm(b.SignIn(request, "alice", "right"))
	answer := authorizetest.Location(b.T, b.Post("/oauth2/select_encounter", url.Values{"request": {sealed}, "encounter": {"v1"}}))
	tokens := b.Post("/oauth2/token", authorizetest.CodeForm(answer.Query().Get("code"), nil))
	return authorizetest.Decode[authorizetest.LaunchResponse](b.T, tokens).Encounter == "v1"
}

// ehrLaunchTokens returns the token response of an app launched by an EHR, or nil if EHR launch is disabled.
func ehrLaunchTokens(b *authorizetest.Browser) map[string]any {
	r := b.Post("/oauth2/launch", authorizetest.LaunchForm(nil))
	if r.StatusCode != http.StatusCreated {
		return nil
	}
	launch, _ := authorizetest.Decode[map[string]any](b.T, r)["launch"].(string)
	answer := b.SignInAlice(authorizetest.Request(url.Values{"scope": {"launch"}, "launch": {launch}}))
	return authorizetest.Decode[map[string]any](b.T, b.Post("/oauth2/token", authorizetest.CodeForm(answer.Query().Get("code"), nil)))
}

// receivesLaunchMember reports whether a launched app receives a member of its context.
func receivesLaunchMember(member string) func(*authorizetest.Browser) bool {
	return func(b *authorizetest.Browser) bool { return ehrLaunchTokens(b)[member] != nil }
}

// servesPath reports whether a path exists, for any method.
func servesPath(path string) func(*authorizetest.Browser) bool {
	return func(b *authorizetest.Browser) bool { return b.Get(path).StatusCode != http.StatusNotFound }
}

var resourceScopes = []string{"launch", "launch/patient", "launch/encounter", "patient/*.rs", "user/*.rs", "offline_access", "online_access"}

// Each capability is announced if and only if it works, on a server with all features and on a minimal one.
func TestCapabilities(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		works func(*authorizetest.Browser) bool
	}{
		{"launch-standalone", grantsScope("openid")},
		{"launch-ehr", receivesLaunchMember("patient")},
		{"authorize-post", func(b *authorizetest.Browser) bool {
			return b.Post("/oauth2/authorize", authorizetest.Request(nil)).StatusCode < http.StatusBadRequest
		}},
		{"client-public", grantsScope("openid")},
		{"client-confidential-symmetric", func(b *authorizetest.Browser) bool {
			return b.RequestTokens(url.Values{"grant_type": {"client_credentials"}, "client_id": {"confidential"}, "client_secret": {"s3cret"}}).Error == "invalid_scope"
		}},
		{"client-confidential-asymmetric", func(b *authorizetest.Browser) bool {
			return authorizetest.TryAssertion(b, "backend", jose.ES384) != "invalid_client"
		}},
		{"sso-openid-connect", func(b *authorizetest.Browser) bool {
			return b.Redeem(b.SignInAlice(authorizetest.Request(url.Values{"scope": {"openid"}}))).IDToken != ""
		}},
		{"context-banner", receivesLaunchMember("need_patient_banner")},
		{"context-style", receivesLaunchMember("smart_style_url")},
		{"context-ehr-patient", receivesLaunchMember("patient")},
		{"context-ehr-encounter", receivesLaunchMember("encounter")},
		{"context-standalone-patient", grantsScope("launch/patient")},
		{"context-standalone-encounter", allowsEncounterChoice},
		{"permission-offline", issuesRefreshToken("offline_access")},
		{"permission-online", issuesRefreshToken("online_access")},
		{"permission-patient", grantsScope("patient/Observation.rs")},
		{"permission-user", grantsScope("user/Observation.rs")},
		{"permission-v1", grantsScope("user/Observation.read")},
		{"permission-v2", grantsScope("user/Observation.rs?category=laboratory")},
		{"smart-app-state", servesPath("/fhir/R4/Basic")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for _, c := range []capable{{scopes: resourceScopes, authorizePOST: true, ehr: true}, {}} {
				b := c.browser(t)
				m := authorizetest.Decode[smart.Configuration](t, b.Get(smartConfiguration))
				announced, works := slices.Contains(m.Capabilities, tt.name), tt.works(c.browser(t))
				if announced != works {
					t.Errorf("with scopes %q: announced %t, works %t", c.scopes, announced, works)
				}
			}
		})
	}
}

// Each announced resource scope is granted.
func TestScopesSupported(t *testing.T) {
	t.Parallel()
	c := capable{scopes: []string{"user/Observation.rs?category=laboratory", "user/Patient.read", "demo.read", "offline_access", "patient/*.rs", "launch/patient"}}
	b := c.browser(t)
	m := authorizetest.Decode[smart.Configuration](t, b.Get(smartConfiguration))
	for _, want := range []string{"user/*.rs", "user/*.read", "user/Observation.rs?category=laboratory", "user/Patient.read", "demo.read", "offline_access", "fhirUser", "openid", "launch/patient", "patient/*.rs"} {
		if !slices.Contains(m.Scopes, want) {
			t.Errorf("%s is missing in %q", want, m.Scopes)
		}
	}
	for _, scope := range m.Scopes {
		if strings.Contains(scope, "/") && signInWithScope(c.browser(t), scope) == nil {
			t.Errorf("%s is not granted", scope)
		}
	}
}

func TestScopesSupportedAreBounded(t *testing.T) {
	t.Parallel()
	c := capable{}
	for i := range 5000 {
		c.scopes = append(c.scopes, fmt.Sprintf("user/Observation.rs?code=%d", i), fmt.Sprintf("demo.%d", i))
	}
	m := authorizetest.Decode[smart.Configuration](t, c.browser(t).Get(smartConfiguration))
	if len(m.Scopes) != 200 || !slices.Contains(m.Scopes, "user/*.rs") {
		t.Errorf("%d scopes: %q", len(m.Scopes), m.Scopes)
	}
}

// The account page is announced if it is served.
func TestManagementEndpoint(t *testing.T) {
	t.Parallel()
	b := capable{}.browser(t)
	m := authorizetest.Decode[smart.Configuration](t, b.Get(smartConfiguration))
	if want := servesPath("/oauth2/account")(b); (m.ManagementEndpoint == authorizetest.Issuer+"/oauth2/account") != want {
		t.Errorf("management_endpoint %q, served %t", m.ManagementEndpoint, want)
	}
}

// Metadata required by SMART App Launch 2.2, Asymmetric Authentication.
func TestAsymmetricDiscovery(t *testing.T) {
	t.Parallel()
	b := capable{}.browser(t)
	m := authorizetest.Decode[smart.Configuration](t, b.Get(smartConfiguration))
	if m.TokenEndpoint == "" || len(m.Scopes) == 0 || !slices.Contains(m.Capabilities, "client-confidential-asymmetric") ||
		!slices.Contains(m.ClientAuthentication, client.PrivateKeyJWT) {
		t.Errorf("%+v", m)
	}
	for _, alg := range []jose.SignatureAlgorithm{jose.RS384, jose.ES384} {
		if !slices.Contains(m.ClientAlgorithms, string(alg)) {
			t.Errorf("%s is missing in %q", alg, m.ClientAlgorithms)
		}
	}
}

// Introspection returns the same launch context as the token response (SMART App Launch 2.2, Token Introspection).
func TestIntrospectionOfLaunchedToken(t *testing.T) {
	t.Parallel()
	b := capable{scopes: resourceScopes, ehr: true}.browser(t)
	tokens := ehrLaunchTokens(b)
	access, _ := tokens["access_token"].(string)
	r := authorizetest.PostRequest("/oauth2/introspect", url.Values{"token": {access}})
	r.Header.Set("Authorization", "Bearer "+access)
	got := authorizetest.Decode[map[string]any](t, b.Send(r))
	for _, name := range []string{"patient", "encounter", "fhirContext", "need_patient_banner", "intent", "smart_style_url", "tenant"} {
		if got[name] == nil || !reflect.DeepEqual(got[name], tokens[name]) {
			t.Errorf("%s = %v, in the response %v", name, got[name], tokens[name])
		}
	}
}
