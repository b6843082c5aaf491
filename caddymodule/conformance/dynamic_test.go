package conformance

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"

	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
)

func dynamicPlan() testPlan {
	return testPlan{
		name: "oidcc-dynamic-certification-test-plan",
		text: "With PKCE, which apps that register themselves need here. **The plan itself uses `private_key_jwt` without PKCE, and\n" +
			"would not pass.**",
		variants: []variant{
			{"private_key_jwt", func(p *relyingParty) { p.pkce, p.client = true, infernoES384 }},
			{"client_secret_basic", func(p *relyingParty) { p.pkce = true }},
		},
		modules: []testModule{
			{id: "oidcc-idtoken-rs256", checks: "`id_token_signed_response_alg` RS256 is kept to", run: moduleRegisteredRS256},
			{id: "oidcc-idtoken-unsigned", checks: "alg `none`: `invalid_client_metadata`; discovery does not offer it, so the module ends there", result: "skipped", run: moduleRegisteredUnsigned},
			{id: "oidcc-userinfo-rs256", checks: "userinfo as a signed JWT", result: "not built: userinfo is JSON"},
			{id: "oidcc-ensure-redirect-uri-in-authorization-request", checks: "no redirect URI: a page", run: moduleRegisteredAt("https://rp.example/a", "")},
			{id: "oidcc-redirect-uri-query-OK", checks: "a redirect URI with a query: kept", run: moduleRegisteredAt("https://rp.example/a?foo=bar", "https://rp.example/a?foo=bar")},
			{id: "oidcc-redirect-uri-query-mismatch", checks: "with another query: a page", run: moduleRegisteredAt("https://rp.example/a?foo=bar", "https://rp.example/a?bar=foo")},
			{id: "oidcc-redirect-uri-query-added", checks: "with a query added: a page", run: moduleRegisteredAt("https://rp.example/a", "https://rp.example/a?foo=bar")},
			{id: "oidcc-redirect-uri-regfrag", checks: "a redirect URI with a fragment: `invalid_redirect_uri`", run: moduleRegisteredFragment},
			{id: "oidcc-discovery-endpoint-verification", checks: "as in the config plan, and `registration_endpoint`", run: moduleDiscoveryOfRegistration},
			{id: "oidcc-server", checks: "the answer to a registration; sign-in; deletion", run: moduleRegistered},
			{id: "oidcc-registration-logo-uri", checks: "is shown to people", result: "not built: what an app links to is not shown"},
			{id: "oidcc-registration-policy-uri", checks: "likewise", result: "not built: likewise"},
			{id: "oidcc-registration-tos-uri", checks: "likewise", result: "not built: likewise"},
			{id: "oidcc-registration-jwks-uri", checks: "proves who it is by keys", result: "not run here: `TestRegisteredClientWithKeysByAddress`"},
			{id: "oidcc-registration-sector-uri", checks: "a sector's redirect URIs", result: "not applicable: subjects are public"},
			{id: "oidcc-registration-sector-bad", checks: "likewise", result: "not applicable: subjects are public"},
			{id: "oidcc-server-rotate-keys", checks: "the operator rotates the keys", result: "not applicable: they rotate by age"},
			{id: "oidcc-refresh-token-rp-key-rotation", checks: "the app rotates its keys", result: "not run here: `TestRegisteredMethodIsChanged`, `TestKeysByAddress`"},
			{id: "oidcc-request-uri-unsigned", checks: "a request object by reference", result: "not built: refused, see the basic plan"},
			{id: "oidcc-request-uri-signed-rs256", checks: "likewise", result: "not built: likewise"},
			{id: "oidcc-ensure-request-object-with-redirect-uri", checks: "as in the basic plan", run: moduleRequestObjectRedirectURI},
			{id: "oidcc-refresh-token", checks: "as in the basic plan, with two that registered", waits: true, run: moduleRegisteredRefresh},
		},
	}
}

func assertionPlan() testPlan {
	return testPlan{
		name:     "oidcc-ensure-client-assertion-with-iss-aud-succeeds",
		text:     "Of the dynamic plan too, but with a client that the configuration has.",
		variants: alone(func(p *relyingParty) { p.client, p.audience = infernoRS384, issuer }),
		modules: []testModule{
			{id: "oidcc-ensure-client-assertion-with-iss-aud-succeeds", checks: "the issuer as the assertion's `aud`", run: func(p *relyingParty) { p.flow(nil) }},
		},
	}
}

func otherPlans() testPlan {
	missing := func(id, checks, why string) testModule {
		return testModule{id: id, checks: checks, result: why}
	}
	return testPlan{
		name: "Other plans of the OpenID Foundation",
		text: "These rows are not backed by a test.",
		modules: []testModule{
			missing("oidcc-3rdparty-init-login-certification-test-plan", "sign-in that another party begins", "not built: `initiate_login_uri`"),
			missing("oidcc-hybrid-certification-test-plan", "`code id_token` and its like", "not built: these response types"),
			missing("oidcc-frontchannel-rp-initiated-logout-certification-test-plan", "logout by frames in the browser", "not built: clients are told by the back channel"),
			missing("oidcc-session-management-certification-test-plan", "`check_session_iframe`", "not built"),
		},
	}
}

// registrationResponse is the client information response of RFC 7591 §3.2.1.
type registrationResponse struct {
	ID           string   `json:"client_id"`
	Secret       string   `json:"client_secret"`
	Expires      *int64   `json:"client_secret_expires_at"`
	Issued       int64    `json:"client_id_issued_at"`
	URI          string   `json:"registration_client_uri"`
	Token        string   `json:"registration_access_token"`
	RedirectURIs []string `json:"redirect_uris"`
	Method       string   `json:"token_endpoint_auth_method"`
	Error        string   `json:"error"`
	Description  string   `json:"error_description"`

	JWKS json.RawMessage `json:"jwks"`
}

// register sends metadata to the registration endpoint.
func (p *relyingParty) register(metadata map[string]any) (int, *registrationResponse) {
	p.t.Helper()
	all := map[string]any{
		"client_name": "Registered", "grant_types": []string{"authorization_code", "refresh_token"}, "response_types": []string{"code"},
		"redirect_uris": []string{registeredAddress}, "token_endpoint_auth_method": p.client.method,
	}
	if p.client.key != nil {
		all["jwks"] = jose.JSONWebKeySet{Keys: []jose.JSONWebKey{p.client.key.Public()}}
	}
	maps.Copy(all, metadata)
	text, err := json.Marshal(all)
	if err != nil {
		p.t.Fatal(err)
	}
	path, _ := strings.CutPrefix(p.discovery()["registration_endpoint"].(string), issuer)
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(string(text)))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer sesame")
	response, got := p.Send(r), new(registrationResponse)
	body := gatewaytest.Read(p.t, response)
	if err := json.Unmarshal([]byte(body), got); err != nil || response.Header.Get("Content-Type") != "application/json" {
		p.t.Fatalf("status %d: %v: %s", response.StatusCode, err, body)
	}
	return response.StatusCode, got
}

// registered is a relying party that has registered itself (RFC 7591 §3.2.1).
func (p *relyingParty) registered(redirectURI string, metadata map[string]any) (*relyingParty, *registrationResponse) {
	p.t.Helper()
	all := map[string]any{"redirect_uris": []string{redirectURI}}
	maps.Copy(all, metadata)
	status, got := p.register(all)
	if status != http.StatusCreated || got.ID == "" || got.Issued == 0 || got.Token == "" ||
		!slices.Equal(got.RedirectURIs, []string{redirectURI}) || got.Method != p.client.method || !strings.HasPrefix(got.URI, issuer+"/") {
		p.t.Fatalf("status %d: %+v", status, got)
	}
	if byKey := p.client.key != nil; byKey != (got.JWKS != nil) || byKey == (bitsOf(got.Secret) >= 128 && got.Expires != nil) {
		p.t.Fatalf("neither a secret nor keys, or both: %+v", got)
	}
	return p.as(oauthClient{id: got.ID, secret: got.Secret, method: got.Method, key: p.client.key, redirectURI: redirectURI}), got
}

const registeredAddress = "https://rp.example/registered"

func moduleRegistered(p *relyingParty) {
	client, made := p.registered(registeredAddress, nil)
	if f := client.flow(nil); f.consents != 1 {
		p.t.Errorf("asked for consent %d times", f.consents)
	}
	path, _ := strings.CutPrefix(made.URI, issuer)
	r := httptest.NewRequest(http.MethodDelete, path, nil)
	r.Header.Set("Authorization", "Bearer "+made.Token)
	if got := p.Send(r); got.StatusCode != http.StatusNoContent {
		p.t.Errorf("deletion: status %d", got.StatusCode)
	}
	client.shownError(client.ask(client.request(nil)))
}

func moduleRegisteredRS256(p *relyingParty) {
	client, _ := p.registered(registeredAddress, map[string]any{"id_token_signed_response_alg": "RS256"})
	client.flow(nil) // checks alg and kid
}

func moduleRegisteredUnsigned(p *relyingParty) {
	moduleIDTokenUnsigned(p)
	p.refusedRegistration(map[string]any{"id_token_signed_response_alg": "none"}, "invalid_client_metadata")
}

func moduleRegisteredFragment(p *relyingParty) {
	p.refusedRegistration(map[string]any{"redirect_uris": []string{registeredAddress + "#foobar"}}, "invalid_redirect_uri")
}

func (p *relyingParty) refusedRegistration(metadata map[string]any, code string) {
	p.t.Helper()
	status, got := p.register(metadata)
	if status != http.StatusBadRequest || got.Error != code || !errorText.MatchString(got.Description) || got.ID != "" {
		p.t.Errorf("status %d: %+v", status, got)
	}
}

// moduleRegisteredAt registers one redirect URI and sends another, which must be
// refused unless they are equal.
func moduleRegisteredAt(redirectURI, sent string) func(*relyingParty) {
	return func(p *relyingParty) {
		client, _ := p.registered(redirectURI, nil)
		q := client.request(url.Values{"redirect_uri": {sent}})
		if sent == redirectURI {
			client.flowOf(q, client.ask(q))
			return
		}
		client.shownError(client.ask(q))
	}
}

func moduleDiscoveryOfRegistration(p *relyingParty) {
	moduleDiscovery(p)
	if p.discovery()["registration_endpoint"] == nil {
		p.t.Error("no registration_endpoint")
	}
}

func moduleRegisteredRefresh(p *relyingParty) {
	first, _ := p.registered(registeredAddress, map[string]any{"scope": "openid offline_access"})
	second, _ := p.registered(registeredAddress, map[string]any{"scope": "openid offline_access"})
	refreshTwo(first, second)
}
