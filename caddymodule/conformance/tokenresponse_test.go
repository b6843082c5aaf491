package conformance

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/josetest"
)

// tokenResponse is the response of the token endpoint.
type tokenResponse struct {
	launchContext

	AccessToken string          `json:"access_token"`
	TokenType   string          `json:"token_type"`
	ExpiresIn   json.RawMessage `json:"expires_in"`
	Scope       string          `json:"scope"`
	IDToken     string          `json:"id_token"`
	Refresh     string          `json:"refresh_token"`
	Error       string          `json:"error"`
	Description string          `json:"error_description"`
}

// tokenRequest is a request to the token endpoint, authenticated by the client's
// method. The method "" authenticates nobody.
func (p *relyingParty) tokenRequest(path string, form url.Values) *http.Request {
	p.t.Helper()
	switch p.client.method {
	case "client_secret_post":
		form.Set("client_secret", p.client.secret)
		form.Set("client_id", p.client.id)
	case "none":
		form.Set("client_id", p.client.id)
	case "private_key_jwt":
		form.Set("client_assertion_type", "urn:ietf:params:oauth:client-assertion-type:jwt-bearer")
		form.Set("client_assertion", p.assertion(nil))
	}
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Accept", "application/json")
	if p.client.method == "client_secret_basic" {
		r.SetBasicAuth(url.QueryEscape(p.client.id), url.QueryEscape(p.client.secret))
	}
	return r
}

// assertion is a client assertion with the claims that Inferno sends: no iat.
func (p *relyingParty) assertion(change map[string]any) string {
	p.t.Helper()
	audience := p.audience
	if audience == "" {
		audience = issuer + "/oauth2/token"
	}
	claims := map[string]any{
		"iss": p.client.id, "sub": p.client.id, "aud": audience, "jti": unguessable(),
		"exp": time.Now().Add(5 * time.Minute).Unix(),
	}
	maps.Copy(claims, change)
	key := jose.SigningKey{Algorithm: jose.SignatureAlgorithm(p.client.key.Algorithm), Key: *p.client.key}
	return josetest.SignClaims(p.t, key, josetest.Header{"typ": "JWT"}, claims)
}

// atToken sends a form to the token endpoint and checks what holds for all of its
// responses: JSON, not to be stored (RFC 6749 §5.1).
func (p *relyingParty) atToken(form url.Values) (int, *tokenResponse) {
	p.t.Helper()
	return p.tokensOf(p.Send(p.tokenRequest("/oauth2/token", form)))
}

func (p *relyingParty) tokensOf(r *http.Response) (int, *tokenResponse) {
	p.t.Helper()
	body, tokens := []byte(gatewaytest.Read(p.t, r)), new(tokenResponse)
	if err := json.Unmarshal(body, tokens); err != nil {
		p.t.Fatalf("status %d: %v: %s", r.StatusCode, err, body)
	}
	kind, store := r.Header.Get("Content-Type"), r.Header.Get("Cache-Control")
	if kind != "application/json" || store != "no-store" || r.Header.Get("Pragma") != "no-cache" {
		p.t.Errorf("Content-Type %q, Cache-Control %q, Pragma %q", kind, store, r.Header.Get("Pragma"))
	}
	return r.StatusCode, tokens
}

func (p *relyingParty) codeForm(code string) url.Values {
	form := url.Values{"grant_type": {"authorization_code"}, "code": {code}, "redirect_uri": {p.client.redirectURI}}
	if p.pkce {
		form.Set("code_verifier", codeVerifier)
	}
	return form
}

func formOfRefresh(token, scope string) url.Values {
	form := url.Values{"grant_type": {"refresh_token"}, "refresh_token": {token}}
	if scope != "" {
		form.Set("scope", scope)
	}
	return form
}

// exchange checks the response to a token request that must succeed.
func (p *relyingParty) exchange(form url.Values) *tokenResponse {
	p.t.Helper()
	status, tokens := p.atToken(form)
	if status != http.StatusOK || tokens.Error != "" || tokens.AccessToken == "" || !strings.EqualFold(tokens.TokenType, "Bearer") {
		p.t.Fatalf("status %d: %+v", status, tokens)
	}
	var seconds int
	if err := json.Unmarshal(tokens.ExpiresIn, &seconds); err != nil || seconds <= 0 || bytes.ContainsRune(tokens.ExpiresIn, '"') {
		p.t.Errorf("expires_in %s", tokens.ExpiresIn)
	}
	return tokens
}

// refusedToken checks the response to a token request that must fail (RFC 6749 §5.2).
func (p *relyingParty) refusedToken(form url.Values, statuses []int, codes ...string) {
	p.t.Helper()
	status, got := p.atToken(form)
	if !slices.Contains(statuses, status) || !slices.Contains(codes, got.Error) || !errorText.MatchString(got.Description) || got.AccessToken != "" {
		p.t.Errorf("status %d: %+v", status, got)
	}
}
