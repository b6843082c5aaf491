package conformance

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/josetest"
)

func backendServicesPlan() testPlan {
	return testPlan{
		name:     "Inferno: smart_backend_services",
		text:     "`client_credentials` by `private_key_jwt`, scope `system/*.rs`.",
		variants: []variant{infernoVariant("RS384", &infernoRS384), infernoVariant("ES384", &infernoES384)},
		modules: append(discoveryModules("client-confidential-asymmetric"), []testModule{
			tlsModule("smart_backend_services_token_tls_version"),
			{id: "smart_backend_services_invalid_grant_type", checks: "400", run: moduleBackendRefused("grant_type", "not_a_grant_type", "unsupported_grant_type")},
			{id: "smart_backend_services_invalid_client_assertion", checks: "an unknown `client_assertion_type`: 400", run: moduleBackendRefused("client_assertion_type", "not_an_assertion_type", "invalid_request")},
			{id: "smart_backend_services_invalid_jwt", checks: "no JWT; wrong claims; expired; another key; an unknown `kid` or `jku`; alg `none` or HS256; used before: 400 or 401, `invalid_client`", run: moduleBackendInvalidJWT},
			{id: "smart_backend_services_auth_request_success", checks: "200", run: moduleBackendServices},
			{id: "smart_backend_services_auth_response_body", checks: "`access_token`, `token_type`, a number `expires_in` of at most 300, `scope`; no refresh token", run: moduleBackendServices},
		}...),
	}
}

func bulkDataPlan() testPlan {
	return testPlan{
		name:     "Inferno: bulk data, authorization",
		text:     "The authorization tests of the bulk data test kit beyond the backend services modules, named as in its first version.",
		variants: []variant{infernoVariant("RS384", &infernoRS384), infernoVariant("ES384", &infernoES384)},
		modules: []testModule{
			{id: "require_content_type", checks: "the parameters as JSON: 400", run: moduleBackendContentType},
			{id: "require_system_scope", checks: "a `user/` scope: 400", run: moduleBackendRefused("scope", "user/*.rs", "invalid_scope")},
			{id: "require_grant_type", checks: "an unknown `grant_type`: 400", run: moduleBackendRefused("grant_type", "not_a_grant_type", "unsupported_grant_type")},
			{id: "require_client_assertion_type", checks: "an unknown `client_assertion_type`: 400", run: moduleBackendRefused("client_assertion_type", "not_an_assertion_type", "invalid_request")},
			{id: "require_client_assertion", checks: "no JWT, or wrong claims: 400 or 401", run: moduleBackendInvalidJWT},
		},
	}
}

func credentialsForm() url.Values {
	return url.Values{"grant_type": {"client_credentials"}, "scope": {"system/*.rs"}}
}

// moduleBackendRefused changes one parameter of a valid request and expects an error with the given code.
func moduleBackendRefused(name, value, code string) func(*relyingParty) {
	return func(p *relyingParty) {
		form := credentialsForm()
		p.tokenRequest("/oauth2/token", form)
		form.Set(name, value)
		p.client.method = ""
		p.refusedToken(form, badRequest, code)
	}
}

func moduleBackendInvalidJWT(p *relyingParty) {
	used := p.assertion(nil)
	p.withAssertion(used)
	another := jose.SigningKey{Algorithm: jose.SignatureAlgorithm(p.client.key.Algorithm), Key: *p.client.key}
	other := newKey(p.client.key.Algorithm)
	another.Key = *other
	header := func(change josetest.Header) string {
		all := josetest.Header{"typ": "JWT", "kid": p.client.key.KeyID}
		maps.Copy(all, change)
		key := jose.SigningKey{Algorithm: another.Algorithm, Key: p.client.key.Key}
		return josetest.SignClaims(p.t, key, all, map[string]any{"iss": p.client.id, "sub": p.client.id, "aud": issuer + "/oauth2/token", "jti": randomSecret(), "exp": time.Now().Add(time.Minute).Unix()})
	}
	p.withAssertion(header(nil))
	good := p.assertion(nil)
	for name, assertion := range map[string]string{
		"an unknown kid":      header(josetest.Header{"kid": "unknown"}),
		"an unregistered jku": header(josetest.Header{"jku": "https://rp.example/jwks"}),
		"typ of an ID token":  header(josetest.Header{"typ": "logout+jwt"}),
		"alg none":            unsigned(good, "none"),
		"alg HS256":           unsigned(good, "HS256"),
		"no JWT":              "invalid",
		"used before":         used,
		"another iss":         p.assertion(map[string]any{"iss": "somebody"}),
		"another sub":         p.assertion(map[string]any{"sub": "somebody"}),
		"another aud":         p.assertion(map[string]any{"aud": "https://another.example/token"}),
		"old":                 p.assertion(map[string]any{"exp": 1}),
		"without exp":         p.assertion(map[string]any{"exp": nil}),
		"without jti":         p.assertion(map[string]any{"jti": nil}),
		"by another key":      josetest.SignClaims(p.t, another, josetest.Header{"typ": "JWT"}, map[string]any{"iss": p.client.id, "sub": p.client.id, "aud": issuer + "/oauth2/token", "jti": randomSecret(), "exp": 4e9}),
		"good for a long day": p.assertion(map[string]any{"exp": 4e9}),
	} {
		status, code := p.tryAssertion(assertion)
		if !slices.Contains(refusals, status) || code != "invalid_client" {
			p.t.Errorf("%s: status %d, %s", name, status, code)
		}
	}
}

// unsigned sets the algorithm in the header of a JWT and removes the signature.
func unsigned(token, algorithm string) string {
	_, rest, _ := strings.Cut(token, ".")
	claims, _, _ := strings.Cut(rest, ".")
	return base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"`+algorithm+`","typ":"JWT"}`)) + "." + claims + "."
}

// withAssertion gets a token with a client assertion.
func (p *relyingParty) withAssertion(assertion string) {
	p.t.Helper()
	if status, code := p.tryAssertion(assertion); status != http.StatusOK {
		p.t.Errorf("status %d, %s", status, code)
	}
}

// tryAssertion returns the status and error code of the response to a client assertion.
func (p *relyingParty) tryAssertion(assertion string) (status int, code string) {
	p.t.Helper()
	form := credentialsForm()
	form.Set("client_assertion_type", "urn:ietf:params:oauth:client-assertion-type:jwt-bearer")
	form.Set("client_assertion", assertion)
	status, tokens := p.tokensOf(p.Post("/oauth2/token", form))
	return status, tokens.Error
}

// moduleBackendContentType sends the parameters of a valid request as JSON.
func moduleBackendContentType(p *relyingParty) {
	r := p.tokenRequest("/oauth2/token", credentialsForm())
	r.Header.Set("Content-Type", "application/json")
	if status, got := p.tokensOf(p.Send(r)); status != http.StatusBadRequest || got.Error != "invalid_request" {
		p.t.Errorf("status %d, %s", status, got.Error)
	}
}

func moduleBackendServices(p *relyingParty) {
	got := p.exchange(credentialsForm())
	var seconds int
	err := json.Unmarshal(got.ExpiresIn, &seconds)
	if err != nil || seconds > 300 || got.Scope != "system/*.rs" || got.Refresh != "" || got.IDToken != "" {
		p.t.Errorf("%v: %+v", err, got)
	}
}
