package conformance

import (
	"bytes"
	"encoding/json"
	"image"
	"image/png"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
)

func dynamicPlan() testPlan {
	return testPlan{
		name:     "oidcc-dynamic-certification-test-plan",
		text:     "`private_key_jwt` with RS256, without PKCE. Each module registers its own clients and deletes them. The gateway has `registration` with `pkce optional` and `request_objects`. A configured client has the response types of the implicit plan, which discovery must list; registered clients get only `code`.",
		variants: []variant{{"result", registering("private_key_jwt", nil)}},
		modules: []testModule{
			{id: "oidcc-idtoken-rs256", checks: "`id_token_signed_response_alg` RS256 is honored", run: moduleRegisteredRS256},
			{id: "oidcc-idtoken-unsigned", checks: "ID tokens with alg `none`; skipped because discovery does not offer them", run: moduleIDTokenUnsigned},
			{id: "oidcc-userinfo-rs256", checks: "userinfo as a JWT, with iss and aud, by a published key, without a nonce", run: moduleUserinfoRS256},
			{id: "oidcc-ensure-redirect-uri-in-authorization-request", checks: "two registered, none sent: an error page", run: moduleWithoutRedirectURI},
			{id: "oidcc-redirect-uri-query-OK", checks: "a redirect URI with a query: the query is kept", run: moduleRegisteredAt("https://rp.example/a?foo=bar", "https://rp.example/a?foo=bar")},
			{id: "oidcc-redirect-uri-query-mismatch", checks: "a different query: an error page", run: moduleRegisteredAt("https://rp.example/a?foo=bar", "https://rp.example/a?bar=foo")},
			{id: "oidcc-redirect-uri-query-added", checks: "an added query: an error page", run: moduleRegisteredAt("https://rp.example/a", "https://rp.example/a?foo=bar")},
			{id: "oidcc-redirect-uri-regfrag", checks: "a redirect URI with a fragment: `invalid_redirect_uri`", run: moduleRegisteredFragment},
			{id: "oidcc-discovery-endpoint-verification", checks: "as in the config plan, and `registration_endpoint`", run: moduleDiscoveryOfRegistration},
			{id: "oidcc-server", checks: "the registration response; sign-in; deletion", run: moduleServer},
			{id: "oidcc-registration-logo-uri", checks: "shown as an image on the sign-in page", run: moduleRegisteredLogo},
			{id: "oidcc-registration-policy-uri", checks: "linked on the sign-in page", run: moduleRegisteredLink("policy_uri")},
			{id: "oidcc-registration-tos-uri", checks: "linked on the sign-in page", run: moduleRegisteredLink("tos_uri")},
			{id: "oidcc-registration-jwks-uri", checks: "client authentication with keys at a `jwks_uri`", run: moduleRegisteredJWKSURI},
			{id: "oidcc-registration-sector-uri", checks: "a sector's redirect URIs; skipped because discovery has no pairwise subjects", run: moduleSector},
			{id: "oidcc-registration-sector-bad", checks: "as `oidcc-registration-sector-uri`", run: moduleSector},
			{id: "oidcc-server-rotate-keys", checks: "key rotation by the operator: new keys under new kids, the old keys still published", result: "not run here: `TestRotateKeys`"},
			{id: "oidcc-refresh-token-rp-key-rotation", checks: "a new key at the `jwks_uri`, and 60 s later a refresh with it", waits: true, run: moduleKeyRotation},
			{id: "oidcc-request-uri-unsigned", checks: "an unsigned request object by reference", run: moduleRequestURIUnsigned},
			{id: "oidcc-request-uri-signed-rs256", checks: "a signed request object with iss and aud", run: moduleRequestURISigned},
			{id: "oidcc-ensure-request-object-with-redirect-uri", checks: "as in the basic plan", run: moduleRequestObjectRedirectURI},
			{id: "oidcc-refresh-token", checks: "as in the basic plan", waits: true, run: moduleRefreshToken},
			{id: "oidcc-ensure-client-assertion-with-iss-aud-succeeds", checks: "the issuer as the assertion's `aud`", run: moduleIssuerAsAudience},
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
			missing("oidcc-3rdparty-init-login-certification-test-plan", "sign-in initiated by a third party", "not built: `initiate_login_uri`"),
			missing("oidcc-hybrid-certification-test-plan", "`code id_token` and the like", "not built: these response types"),
			missing("oidcc-frontchannel-rp-initiated-logout-certification-test-plan", "logout by frames in the browser", "not built: clients are notified through the back channel"),
			missing("oidcc-session-management-certification-test-plan", "`check_session_iframe`", "not built"),
		},
	}
}

func moduleRegisteredRS256(p *relyingParty) {
	p.registered(registeredAddress, map[string]any{"id_token_signed_response_alg": "RS256"}).flow(nil) // flow checks the ID token's alg and kid
}

func moduleUserinfoRS256(p *relyingParty) {
	if !p.discovers("userinfo_signing_alg_values_supported", "RS256") {
		p.t.Error("discovery does not offer it")
	}
	client := p.registered(registeredAddress, map[string]any{"userinfo_signed_response_alg": "RS256"})
	q := client.request(nil)
	tokens := client.exchange(client.codeForm(client.granted(q, client.ask(q)).Get("code")))
	id := client.checkIDToken(q, tokens)
	r := p.Get("/oauth2/userinfo", tokens.AccessToken)
	signed := gatewaytest.ReadBody(p.t, r)
	if kind := r.Header.Get("Content-Type"); r.StatusCode != http.StatusOK || kind != "application/jwt" {
		p.t.Fatalf("status %d, Content-Type %q", r.StatusCode, kind)
	}
	claims, header := p.verified(signed)
	if header.Algorithm != "RS256" || claims["iss"] != issuer || claims["aud"] != client.client.id || claims["nonce"] != nil || claims["sub"] != id["sub"] {
		p.t.Errorf("header %+v, claims %v", header, claims)
	}
	checkStandardClaims(p.t, claims)
}

func moduleWithoutRedirectURI(p *relyingParty) {
	client := p.registered(registeredAddress, map[string]any{"redirect_uris": []string{registeredAddress, registeredAddress + "?dummy1=lorem"}})
	client.shownError(client.ask(client.request(url.Values{"redirect_uri": {""}})))
}

// moduleRegisteredAt registers a redirect URI and sends another one, which must be rejected unless they are equal.
func moduleRegisteredAt(redirectURI, sent string) func(*relyingParty) {
	return func(p *relyingParty) {
		client := p.registered(redirectURI, nil)
		q := client.request(url.Values{"redirect_uri": {sent}})
		if sent == redirectURI {
			client.flowOf(q, client.ask(q))
			return
		}
		client.shownError(client.ask(q))
	}
}

func moduleRegisteredFragment(p *relyingParty) {
	p.refusedRegistration(map[string]any{"redirect_uris": []string{registeredAddress + "#foobar"}}, "invalid_redirect_uri")
}

func moduleDiscoveryOfRegistration(p *relyingParty) {
	moduleDiscovery(p)
	if p.discovery()["registration_endpoint"] == nil {
		p.t.Error("no registration_endpoint")
	}
}

// signInPage sends an authorization request without a session and returns the sign-in page.
func (p *relyingParty) signInPage() string {
	p.t.Helper()
	page := gatewaytest.ReadBody(p.t, p.Get(p.Get("/oauth2/authorize?"+p.request(nil).Encode(), "").Header.Get("Location"), ""))
	if !strings.Contains(page, `action="/oauth2/login"`) {
		p.t.Fatalf("no sign-in page: %s", page)
	}
	return page
}

func moduleRegisteredLogo(p *relyingParty) {
	var logo bytes.Buffer
	if err := png.Encode(&logo, image.NewGray(image.Rect(0, 0, 2, 2))); err != nil {
		p.t.Fatal(err)
	}
	page := p.registered(registeredAddress, map[string]any{"logo_uri": p.server.publish("/images/"+randomSecret()+".png", logo.String())}).signInPage()
	_, source, _ := strings.Cut(page, `<img class="app" src="`)
	source, _, _ = strings.Cut(source, `"`)
	if r := p.Get(source, ""); r.StatusCode != http.StatusOK || r.Header.Get("Content-Type") != "image/png" || gatewaytest.ReadBody(p.t, r) != logo.String() {
		p.t.Errorf("status %d, Content-Type %q", r.StatusCode, r.Header.Get("Content-Type"))
	}
}

func moduleRegisteredLink(member string) func(*relyingParty) {
	return func(p *relyingParty) {
		address := p.server.URL + "/" + randomSecret()
		if page := p.registered(registeredAddress, map[string]any{member: address}).signInPage(); !strings.Contains(page, `<a href="`+address+`"`) {
			p.t.Errorf("no link: %s", page)
		}
	}
}

// publishKeys publishes the client's keys and returns the jwks_uri.
func (p *relyingParty) publishKeys(path string) string {
	p.t.Helper()
	set, err := json.Marshal(publicSet(p.client.key))
	if err != nil {
		p.t.Fatal(err)
	}
	return p.server.publish(path, string(set))
}

// registeredWithJWKSURI registers a client with a jwks_uri that serves a key with a kid.
func (p *relyingParty) registeredWithJWKSURI(path string, grants ...string) *relyingParty {
	p.client.key = rsaKey(0, randomSecret())
	grants = append(grants, "authorization_code")
	return p.registered(registeredAddress, map[string]any{"jwks": nil, "jwks_uri": p.publishKeys(path), "grant_types": grants})
}

func moduleRegisteredJWKSURI(p *relyingParty) {
	p.registeredWithJWKSURI("/" + randomSecret() + "/client1_jwks").flow(nil)
}

func moduleSector(p *relyingParty) {
	if !p.discovers("subject_types_supported", "pairwise") {
		p.skipped = true
		return
	}
	p.t.Fatal("pairwise subjects are offered, and the rest of the module is not ported")
}

func moduleKeyRotation(p *relyingParty) {
	path := "/" + randomSecret() + "/client1_jwks"
	client := p.registeredWithJWKSURI(path, "refresh_token")
	client.refreshed(offlineScope, func() {
		client.client.key = rsaKey(1, randomSecret())
		client.publishKeys(path)
		time.Sleep(time.Minute) // returns immediately in a synctest bubble
	})
}

func moduleIssuerAsAudience(p *relyingParty) {
	p.audience = issuer
	p.flow(nil)
}
