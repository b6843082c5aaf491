package fhirapp

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/josetest"
)

const (
	tenantA, tenantB, personalAccounts = "aaaaaaaa-1111-2222-3333-444444444444", "bbbbbbbb-1111-2222-3333-444444444444", "9188040d-6c67-4c5b-b112-36a304b66dad"

	sharedPath = "/organizations/v2.0"
	graph      = providertest.Endpoint("/v1.0/me/getMemberObjects")
)

type (
	object = map[string]any
	list   = []any
)

// product is an identity provider as its vendor documents it, the idp block for it, and the result of a sign-in.
type product struct {
	name     string
	kind     string            // kind of the idp
	options  string            // further lines of the idp block
	settings func(*productSim) // changes to the provider
	path     string            // path of the issuer
	sub      string            // sub; default: 248289761001
	claims   object            // claims of the ID token
	userinfo object            // claims of userinfo; default: only sub
	request  url.Values        // further parameters of the app's request

	sent   url.Values // expected parameters of the authentication request; "" for a parameter that is not sent
	issuer string     // expected issuer of the account below the provider's address; default: path
	want   object     // expected claims of the gateway's userinfo besides sub; default: a verified address, and Practitioner/42
	denied bool       // whether the group's scope is not granted
	fails  int        // expected status of the page if the sign-in fails; 0 if it succeeds
}

type productSim struct {
	*providertest.Provider
	tb testing.TB
}

// metadata changes members of the discovery document.
func metadata(members object) func(*productSim) {
	return func(p *productSim) {
		p.Change(func(s *providertest.Settings) { maps.Copy(s.Metadata, members) })
	}
}

// server returns the provider's address without the path of its issuer.
func (p *productSim) server() string {
	u, err := url.Parse(p.Issuer)
	authorizetest.NoError(p.tb, err)
	return u.Scheme + "://" + u.Host
}

// asTenant makes the provider issue tokens of a tenant, like Entra ID's shared issuers.
func asTenant(issuerTenant, tid string) func(*productSim) {
	return func(p *productSim) {
		server := p.server()
		p.Change(func(s *providertest.Settings) {
			maps.Copy(s.Metadata, entraMetadata)
			s.Metadata["issuer"] = server + "/{tenantid}/v2.0"
			s.IDToken = func(t *providertest.IDToken) {
				t.Claims["iss"], t.Claims["tid"] = server+"/"+issuerTenant+"/v2.0", tid
			}
		})
	}
}

func graphAnswers(fault providertest.Fault) func(*productSim) {
	return func(p *productSim) {
		metadata(entraMetadata)(p)
		p.SetFault(graph, fault)
	}
}

var (
	// Entra ID lists neither PKCE nor RFC 9207.
	entraMetadata = object{
		"token_endpoint_auth_methods_supported": list{"client_secret_post", "private_key_jwt", "client_secret_basic"}, "code_challenge_methods_supported": nil,
		"authorization_response_iss_parameter_supported": nil, "scopes_supported": list{"openid", "profile", "email", "offline_access"},
	}
	entraClaims = object{"tid": tenantA, "oid": "o", "preferred_username": "alice@hospital.example", "email": "alice@hospital.example", "xms_edov": true, "groups": list{"g"}, "extn.fhirUser": list{"Practitioner/42"}}
	tooMany     = object{"hasgroups": nil, "groups": nil, "_claim_names": object{"groups": "src1"}, "_claim_sources": object{"src1": object{"endpoint": "https://graph.windows.net/t/users/o/getMemberObjects"}}}
	adfs        = metadata(object{"access_token_issuer": "http://adfs.hospital.example/adfs/services/trust", "code_challenge_methods_supported": nil, "authorization_response_iss_parameter_supported": nil})
	unverified  = object{"email": "alice@hospital.example", "email_verified": false, "fhirUser": "Practitioner/42"}
)

// with returns claims with changes; nil removes a claim.
func with(claims object, changes ...object) object {
	changed := maps.Clone(claims)
	for _, change := range changes {
		maps.Copy(changed, change)
	}
	maps.DeleteFunc(changed, func(_ string, v any) bool { return v == nil })
	return changed
}

const (
	fhirUserInExtension = "claim fhirUser extn.fhirUser\n"
	tenants             = fhirUserInExtension + "tenants " + tenantA + "\n"
)

var products = []product{
	{name: "Entra ID", kind: "entra", path: "/" + tenantA + "/v2.0", options: fhirUserInExtension, settings: metadata(entraMetadata), claims: entraClaims},
	{name: "Entra ID, token of another tenant", kind: "entra", path: "/" + tenantA + "/v2.0", settings: func(p *productSim) {
		server := p.server()
		p.Change(func(s *providertest.Settings) { s.IDToken = providertest.WithClaim("iss", server+"/"+tenantB+"/v2.0") })
	}, claims: entraClaims, fails: http.StatusServiceUnavailable},
	{name: "Entra ID, domain of the address not verified", kind: "entra", path: "/" + tenantA + "/v2.0", options: fhirUserInExtension, settings: metadata(entraMetadata), claims: with(entraClaims, object{"xms_edov": nil}), want: unverified},
	{name: "Entra ID v1", kind: "entra", path: "/" + tenantA + "/", options: fhirUserInExtension + "claim email upn\ntrust_email\nrequest_parameter resource https://fhir.hospital.example\nrequest_parameter domain_hint",
		settings: metadata(entraMetadata), claims: object{"ver": "1.0", "upn": "alice@hospital.example", "unique_name": "alice@hospital.example", "groups": list{"g"}, "extn.fhirUser": "Practitioner/42"},
		request: url.Values{"domain_hint": {"hospital.example"}}, sent: url.Values{"resource": {"https://fhir.hospital.example"}, "domain_hint": {"hospital.example"}}},
	{name: "Entra ID, several tenants", kind: "entra", path: sharedPath, options: tenants, settings: asTenant(tenantA, tenantA), claims: entraClaims, issuer: "/" + tenantA + "/v2.0"},
	{name: "Entra ID, common", kind: "entra", path: "/common/v2.0", options: tenants, settings: asTenant(tenantA, tenantA), claims: entraClaims, issuer: "/" + tenantA + "/v2.0"},
	{name: "Entra ID, tenant not listed", kind: "entra", path: sharedPath, options: tenants, settings: asTenant(tenantB, tenantB), claims: entraClaims, fails: http.StatusForbidden},
	{name: "Entra ID, personal account", kind: "entra", path: "/common/v2.0", options: tenants, settings: asTenant(personalAccounts, personalAccounts), claims: entraClaims, fails: http.StatusForbidden},
	{name: "Entra ID, tid of another tenant", kind: "entra", path: sharedPath, options: tenants, settings: asTenant(tenantB, tenantA), claims: entraClaims, fails: http.StatusServiceUnavailable},
	{name: "Entra ID, iss without a tenant ID", kind: "entra", path: sharedPath, options: tenants, settings: asTenant("organizations", tenantA), claims: entraClaims, fails: http.StatusServiceUnavailable},
	{name: "Entra ID, token of version 1", kind: "entra", path: sharedPath, options: tenants, settings: func(p *productSim) {
		asTenant(tenantA, tenantA)(p)
		p.Change(func(s *providertest.Settings) {
			s.IDToken = providertest.WithClaim("iss", "https://sts.windows.net/"+tenantA+"/")
		})
	}, claims: entraClaims, fails: http.StatusServiceUnavailable},
	{name: "Entra ID, more than 200 groups", kind: "entra", path: "/" + tenantA + "/v2.0", options: fhirUserInExtension + "graph_groups {server}", settings: graphAnswers(func(w http.ResponseWriter, r *http.Request) {
		providertest.JSON(http.StatusOK, object{"value": list{"other", "g"}})(w, r)
	}), claims: with(entraClaims, tooMany)},
	{name: "Entra ID, hasgroups", kind: "entra", path: "/" + tenantA + "/v2.0", options: fhirUserInExtension + "graph_groups {server}",
		settings: graphAnswers(providertest.JSON(http.StatusOK, object{"value": list{"g"}})), claims: with(entraClaims, object{"hasgroups": true, "groups": nil})},
	{name: "Entra ID, more than 200 groups, not fetched", kind: "entra", path: "/" + tenantA + "/v2.0", options: fhirUserInExtension, settings: metadata(entraMetadata), claims: with(entraClaims, tooMany), denied: true},
	{name: "Entra ID, Graph refuses", kind: "entra", path: "/" + tenantA + "/v2.0", options: fhirUserInExtension + "graph_groups {server}", settings: graphAnswers(providertest.Status(http.StatusForbidden)), claims: with(entraClaims, tooMany), fails: http.StatusServiceUnavailable},
	{name: "AD FS", kind: "adfs", path: "/adfs", options: "claim fhirUser fhirUser\ntrust_email\nrequest_parameter resource urn:gateway", settings: func(p *productSim) {
		adfs(p)
		p.SetFault(providertest.UserInfo, providertest.Status(http.StatusUnauthorized)) // the access token is for the resource
	}, claims: object{"upn": "alice@hospital.example", "unique_name": `HOSPITAL\alice`, "email": "alice@hospital.example", "group": "g", "fhirUser": "Practitioner/42"}, sent: url.Values{"resource": {"urn:gateway"}}},
	{name: "AD FS, address not trusted", kind: "adfs", path: "/adfs", options: "claim fhirUser fhirUser", settings: adfs,
		claims: object{"email": "alice@hospital.example", "group": list{"g", "h"}, "fhirUser": "Practitioner/42"}, want: unverified},
	{name: "Apple", kind: "apple", options: "fhir_user 000123.abc Practitioner/42", settings: apple, sub: "000123.abc", claims: object{"email": "alice@hospital.example", "email_verified": "true", "is_private_email": "false", "nonce_supported": true},
		sent: url.Values{"response_mode": {"form_post"}, "scope": {"openid email"}}, denied: true},
	{name: "Apple at Work & School", kind: "apple", options: "fhir_user 000123.abc Practitioner/42", settings: apple, sub: "000123.abc", claims: object{"email": "alice@hospital.example", "email_verified": "false"}, want: unverified, denied: true},
	{name: "Okta, custom authorization server", kind: "okta", path: "/oauth2/default", options: "claim fhirUser fhirUser", settings: metadata(object{"scopes_supported": list{"openid", "profile", "email", "offline_access", "device_sso"}}),
		claims: object{"ver": 1, "idp": "00o", "amr": list{"pwd"}, "groups": list{"Everyone", "g"}, "fhirUser": list{"Practitioner/42"}}, userinfo: object{"email": "alice@hospital.example", "email_verified": true}},
	{name: "Okta, several resources", kind: "okta", path: "/oauth2/default", options: "claim fhirUser fhirUser", claims: object{"email": "alice@hospital.example", "groups": list{"g"}, "fhirUser": list{"Practitioner/42", "Practitioner/43"}},
		want: object{"email": "alice@hospital.example", "email_verified": false, "fhirUser": nil}},
	{name: "Auth0", kind: "auth0", path: "/", options: "claim groups https://h.example/groups\nclaim fhirUser https://h.example/fhir_user\nrequest_parameter audience https://fhir.hospital.example", sub: "auth0|5f7c8ec7c33c6c004bbafe82",
		claims: object{"email": "alice@hospital.example", "email_verified": true, "https://h.example/groups": list{"g"}, "https://h.example/fhir_user": "Practitioner/42"}, sent: url.Values{"audience": {"https://fhir.hospital.example"}}},
	{name: "PingOne", kind: "ping", path: "/" + tenantA + "/as", options: "claim groups group_names\nclaim fhirUser fhirUser\ntrust_email", settings: metadata(object{"scopes_supported": list{"openid", "profile", "email"}}),
		claims: object{"acr": "Single_Factor", "env": tenantA, "org": tenantB, "p1.region": "EU"}, userinfo: object{"email": "alice@hospital.example", "group_names": list{"g"}, "fhirUser": "Practitioner/42"}},
	{name: "Amazon Cognito", path: "/eu-central-1_aB3", options: "claim groups cognito:groups\nclaim fhirUser custom:fhirUser", settings: metadata(object{"code_challenge_methods_supported": nil, "authorization_response_iss_parameter_supported": nil}),
		claims:   object{"token_use": "id", "cognito:username": "alice", "cognito:groups": list{"g"}, "email": "alice@hospital.example", "email_verified": true, "custom:fhirUser": "Practitioner/42"},
		userinfo: object{"email": "alice@hospital.example", "email_verified": "true", "username": "alice"}},
	{name: "Google", kind: "google", options: "fhir_user 248289761001 Practitioner/42\nrequest_parameter hd hospital.example\nallow email *@hospital.example",
		claims: object{"hd": "hospital.example", "email": "alice@hospital.example", "email_verified": true}, sent: url.Values{"hd": {"hospital.example"}, "access_type": {"offline"}}, denied: true},
	{name: "Google, any Workspace", kind: "google", options: "fhir_user 248289761001 Practitioner/42\nrequest_parameter hd *", claims: object{"hd": "other.example", "email": "alice@hospital.example", "email_verified": true}, denied: true},
	{name: "Google, domain in other case", kind: "google", options: "fhir_user 248289761001 Practitioner/42\nrequest_parameter hd Hospital.example", claims: object{"hd": "hospital.example", "email": "alice@hospital.example", "email_verified": true}, denied: true},
	{name: "Google, forwarded domain", kind: "google", options: "fhir_user 248289761001 Practitioner/42\nrequest_parameter hd", claims: object{"email": "alice@hospital.example", "email_verified": true}, denied: true},
	{name: "Google, personal account", kind: "google", options: "request_parameter hd hospital.example\nallow email *@hospital.example", claims: object{"email": "alice@hospital.example", "email_verified": true}, fails: http.StatusForbidden},
	{name: "Google, personal account and any Workspace", kind: "google", options: "request_parameter hd *", claims: object{"email": "alice@hospital.example", "email_verified": true}, fails: http.StatusForbidden},
	{name: "Google, another Workspace", kind: "google", options: "request_parameter hd hospital.example\nallow email *@hospital.example", claims: object{"hd": "other.example", "email": "alice@hospital.example", "email_verified": true}, fails: http.StatusForbidden},
	{name: "Google, another domain", kind: "google", options: "request_parameter hd hospital.example\nallow email *@hospital.example", claims: object{"email": "alice@gmail.example", "email_verified": true}, fails: http.StatusForbidden},
	{name: "Keycloak", kind: "keycloak", path: "/realms/hospital", options: "claim fhirUser fhirUser\nrequest_parameter kc_idp_hint", claims: object{"acr": "1", "sid": "s", "email": "alice@hospital.example", "email_verified": true, "groups": list{"g"}, "fhirUser": "Practitioner/42"},
		request: url.Values{"kc_idp_hint": {"saml"}, "domain_hint": {"x"}}, sent: url.Values{"kc_idp_hint": {"saml"}, "domain_hint": {""}}},
	{name: "Keycloak, a hint that is too long", kind: "keycloak", path: "/realms/hospital", options: "claim fhirUser fhirUser\nrequest_parameter kc_idp_hint", claims: object{"email": "alice@hospital.example", "email_verified": true, "groups": list{"g"}, "fhirUser": "Practitioner/42"},
		request: url.Values{"kc_idp_hint": {strings.Repeat("x", 1025)}}, sent: url.Values{"kc_idp_hint": {""}}},
	{name: "OneLogin", path: "/oidc/2", options: "claim fhirUser params.fhirUser\ntrust_email", claims: object{"email": "alice@hospital.example", "preferred_username": "alice", "groups": list{"g"}, "params": object{"fhirUser": "Practitioner/42"}}},
	{name: "GitLab", options: "claim fhirUser job_title", claims: object{"groups_direct": list{"g/h"}}, userinfo: object{"email": "alice@hospital.example", "email_verified": true, "groups": list{"g"}, "job_title": "Practitioner/42"}},
	{name: "Salesforce", options: "claim fhirUser custom_attributes.fhirUser\nclaim groups custom_attributes.groups", sub: "https://login.salesforce.com/id/00Dx/005x", claims: object{"email": "alice@hospital.example", "email_verified": true},
		userinfo: object{"custom_attributes": object{"fhirUser": "Practitioner/42", "groups": "g"}}},
	{name: "authentik", path: "/application/o/gateway/", options: "claim fhirUser fhirUser", claims: object{"email": "alice@hospital.example", "email_verified": true, "groups": list{"g"}, "fhirUser": "Practitioner/42"}},
}

// appleKey is the key in the file of assertion_key.
var appleKey = josetest.NewEC(elliptic.P256())

// apple makes the provider accept only client secrets that Apple would accept.
func apple(p *productSim) {
	p.Change(func(s *providertest.Settings) {
		maps.Copy(s.Metadata, object{"userinfo_endpoint": nil, "token_endpoint_auth_methods_supported": list{"client_secret_post"}, "code_challenge_methods_supported": nil, "end_session_endpoint": nil})
		s.AcceptsSecret = func(secret string) bool { return isAppleSecret(secret, p.Issuer, &appleKey.PublicKey) }
	})
}

func isAppleSecret(secret, audience string, key *ecdsa.PublicKey) bool {
	token, err := jwt.ParseSigned(secret, []jose.SignatureAlgorithm{jose.ES256})
	var c jwt.Claims
	if err != nil || token.Headers[0].KeyID != "KEY123" || token.Claims(key, &c) != nil {
		return false
	}
	return c.Validate(jwt.Expected{Issuer: "TEAM123", Subject: providertest.ClientID, AnyAudience: jwt.Audience{audience}, Time: time.Now()}) == nil &&
		c.Expiry.Time().Before(time.Now().Add(10*time.Minute))
}

// start starts the product's provider.
func (tt *product) start(t *testing.T) *productSim {
	t.Helper()
	person := providertest.Person{Subject: tt.sub, Claims: tt.claims}
	if tt.sub == "" {
		person.Subject = providertest.Alice.Subject
	}
	p := &productSim{providertest.Start(t, func(s *providertest.Settings) {
		s.Path, s.People = tt.path, []providertest.Person{person}
		s.UserInfoResponse = func(answer map[string]any) {
			maps.DeleteFunc(answer, func(name string, _ any) bool { return name != "sub" })
			maps.Copy(answer, tt.userinfo)
		}
	}), t}
	if tt.settings != nil {
		tt.settings(p)
	}
	return p
}

// gateway returns a gateway with the product's idp block.
func (tt *product) gateway(t *testing.T, p *productSim) *gatewaytest.Gateway {
	t.Helper()
	secret := `client_secret "` + providertest.ClientSecret + `"`
	if tt.kind == "apple" {
		der, err := x509.MarshalPKCS8PrivateKey(appleKey)
		authorizetest.NoError(t, err)
		secret = "assertion_key " + gatewaytest.WriteFile(t, "AuthKey.p8", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))) + " KEY123 TEAM123"
	}
	return gatewaytest.New(t, gatewaytest.FormatCaddyfile(`{
	auto_https disable_redirects
	skip_install_trust
	fhir {
		issuer https://localhost:8443
		idp hospital `+tt.kind+` {
			issuer `+p.Issuer+`
			client_id `+providertest.ClientID+`
			`+secret+`
			`+strings.ReplaceAll(tt.options, "{server}", p.server())+`
		}
		scope_limit group g user/*.rs demo.read
		scope_limit any user/*.rs
		client demo-app {
			pkce optional
			redirect_uri `+gatewaytest.DemoCallback+`
			scope fhirUser user/*.rs demo.read
		}
	}
}

https://localhost:8443 {
	fhir_authorize
}
`))
}

// signIn signs in and returns the authentication request and the last response: a redirect to the app, or a page.
func (tt *product) signIn(t *testing.T, g *gatewaytest.Gateway, p *productSim) (sent url.Values, last *http.Response) {
	t.Helper()
	q := gatewaytest.DemoRequest()
	q.Set("scope", "openid email fhirUser user/*.rs demo.read")
	maps.Copy(q, tt.request)
	r := g.Get("/oauth2/authorize?"+q.Encode(), "")
	for range 10 {
		u, err := r.Location()
		switch {
		case err != nil || strings.HasPrefix(u.String(), gatewaytest.DemoCallback):
			return sent, r
		case strings.HasPrefix(u.String(), p.server()):
			sent = u.Query()
			r = tt.sendResponse(g, sent.Get("redirect_uri"), p.Authorize(t, u.String()))
		default:
			r = g.Get(u.RequestURI(), "")
		}
	}
	t.Fatal("too many redirects")
	return nil, nil
}

// sendResponse sends the provider's response to the gateway, with form_post as a form without cookies.
func (tt *product) sendResponse(g *gatewaytest.Gateway, redirectURI string, parameters url.Values) *http.Response {
	path := strings.TrimPrefix(redirectURI, "https://localhost:8443")
	if tt.kind != "apple" {
		return g.Get(path+"?"+parameters.Encode(), "")
	}
	parameters.Set("user", `{"name":{"firstName":"Alice"}}`)
	return g.NewBrowser().Post(path, parameters)
}

// People sign in at each product with the configuration that the documents describe.
func TestProducts(t *testing.T) {
	t.Parallel()
	for _, tt := range products {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := tt.start(t)
			g := tt.gateway(t, p)
			sent, last := tt.signIn(t, g, p)
			for name := range tt.sent {
				if sent.Get(name) != tt.sent.Get(name) {
					t.Errorf("%s=%q, want %q", name, sent.Get(name), tt.sent.Get(name))
				}
			}
			if tt.fails != 0 {
				authorizetest.WantStatus(t, last, tt.fails)
				return
			}
			u, err := last.Location()
			if err != nil {
				t.Fatalf("%d: %s", last.StatusCode, gatewaytest.ReadBody(t, last))
			}
			for _, e := range []providertest.Endpoint{providertest.Discovery, providertest.Keys, providertest.Token, providertest.UserInfo, graph} {
				if n := len(p.Requests(e)); n > 1 {
					t.Errorf("%d requests to %s", n, e)
				}
			}
			if authorizetest.WantCode(t, u); !t.Failed() {
				tt.checkTokens(t, p, g, u.Query().Get("code"))
			}
		})
	}
}

func (tt *product) checkTokens(t *testing.T, p *productSim, g *gatewaytest.Gateway, code string) {
	t.Helper()
	tokens := authorizetest.Decode[authorizetest.TokenResponse](t, g.Post("/oauth2/token", gatewaytest.CodeForm(code)))
	claims := authorizetest.Decode[object](t, g.Get("/oauth2/userinfo", tokens.AccessToken))
	want := tt.want
	if want == nil {
		want = object{"email": "alice@hospital.example", "email_verified": true, "fhirUser": "Practitioner/42"}
	}
	for name, value := range want {
		got := claims[name]
		if text, ok := got.(string); ok {
			got = strings.TrimPrefix(text, "https://localhost:8443/fhir/R4/")
		}
		if got != value {
			t.Errorf("%s: %v, want %v", name, got, value)
		}
	}
	issuer, sub := tt.issuer, tt.sub
	if issuer == "" {
		issuer = tt.path
	}
	if sub == "" {
		sub = providertest.Alice.Subject
	}
	hash := sha256.Sum256([]byte(p.server() + issuer + "\x00" + sub))
	if claims["sub"] != base64.RawURLEncoding.EncodeToString(hash[:]) {
		t.Errorf("sub: %v is not the hash of %s", claims["sub"], issuer)
	}
	if granted := slices.Contains(strings.Fields(tokens.Scope), "demo.read"); granted == tt.denied {
		t.Errorf("scope: %s", tokens.Scope)
	}
}
