package conformance

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/josetest"
)

// signInFlow contains the request and the responses of one sign-in.
type signInFlow struct {
	*authorizationResponse
	request  url.Values
	tokens   *tokenResponse
	id       map[string]any // claims of the ID token
	userinfo map[string]any // nil if there is no access token
}

// flow signs in with a request that change modifies, and checks all responses.
func (p *relyingParty) flow(change url.Values) *signInFlow {
	p.t.Helper()
	q := p.request(change)
	return p.flowOf(q, p.ask(q))
}

// flowOf checks the authorization response and the responses that follow it.
func (p *relyingParty) flowOf(q url.Values, a *authorizationResponse) *signInFlow {
	p.t.Helper()
	got := p.granted(q, a)
	f := &signInFlow{authorizationResponse: a, request: q}
	if code := got.Get("code"); code != "" {
		f.tokens = p.exchange(p.codeForm(code))
	} else {
		f.tokens = &tokenResponse{AccessToken: got.Get("access_token"), IDToken: got.Get("id_token")}
	}
	f.id = p.checkIDToken(q, f.tokens)
	if f.tokens.AccessToken != "" {
		f.userinfo = p.checkUserinfo(p.Get("/oauth2/userinfo", f.tokens.AccessToken), f.id)
	}
	return f
}

// checkIDToken performs the checks common to all modules (OpenID Connect Core §3.1.3.7, §3.2.2.11).
func (p *relyingParty) checkIDToken(q url.Values, tokens *tokenResponse) map[string]any {
	p.t.Helper()
	claims, header := p.verified(tokens.IDToken)
	if header.Algorithm != "RS256" {
		p.t.Errorf("alg %q", header.Algorithm)
	}
	number := func(name string) int64 { v, _ := claims[name].(float64); return int64(v) }
	now := time.Now().Unix()
	sub, _ := claims["sub"].(string)
	switch {
	case claims["iss"] != issuer, claims["aud"] != p.client.id, sub == "", len(sub) > 255:
		p.t.Errorf("claims %v", claims)
	case number("exp") <= now, number("iat") > now+5, number("iat") < now-60, number("auth_time") > now+5, number("auth_time") == 0:
		p.t.Errorf("times %v", claims)
	}
	if nonce, there := claims["nonce"]; q != nil && (there != q.Has("nonce") || there && nonce != q.Get("nonce")) {
		p.t.Errorf("nonce %v, sent %q", nonce, q["nonce"])
	}
	sum := sha256.Sum256([]byte(tokens.AccessToken))
	if want := base64.RawURLEncoding.EncodeToString(sum[:16]); tokens.AccessToken != "" && claims["at_hash"] != want {
		p.t.Errorf("at_hash %v", claims["at_hash"])
	}
	if q != nil {
		p.checkUnasked(q, claims)
	}
	return claims
}

// checkUnasked checks that an ID token contains only claims that were requested by name or, if there is no userinfo, by scope
// (OpenID Connect Core §5.4).
func (p *relyingParty) checkUnasked(q url.Values, claims map[string]any) {
	p.t.Helper()
	allowed := []string{"iss", "sub", "aud", "exp", "iat", "auth_time", "nonce", "at_hash", "sid", "amr", "acr"}
	for scope := range strings.FieldsSeq(q.Get("scope")) {
		if p.responseType == "id_token" || scope == "fhirUser" {
			allowed = append(allowed, claimsByScope[scope]...)
		}
	}
	var requested struct {
		IDToken map[string]any `json:"id_token"`
	}
	if parameter := q.Get("claims"); parameter != "" {
		if err := json.Unmarshal([]byte(parameter), &requested); err != nil {
			p.t.Fatal(err)
		}
	}
	allowed = slices.AppendSeq(allowed, maps.Keys(requested.IDToken))
	for name := range claims {
		if !slices.Contains(allowed, name) {
			p.t.Errorf("claim %s was not requested", name)
		}
	}
}

// claimsByScope maps the scopes of OpenID Connect Core §5.4 and of SMART to their claims. Alice has all of them.
var claimsByScope = map[string][]string{
	"profile": {
		"name", "family_name", "given_name", "middle_name", "nickname", "preferred_username", "profile",
		"picture", "website", "gender", "birthdate", "zoneinfo", "locale", "updated_at",
	},
	"email":    {"email", "email_verified"},
	"phone":    {"phone_number", "phone_number_verified"},
	"address":  {"address"},
	"fhirUser": {"fhirUser"},
}

// verified verifies the signature of a token with the published key that has the same kid. It returns the claims and the
// header.
func (p *relyingParty) verified(token string) (map[string]any, jose.Header) {
	p.t.Helper()
	parsed, err := jwt.ParseSigned(token, []jose.SignatureAlgorithm{jose.RS256, jose.ES256})
	if err != nil {
		p.t.Fatalf("%q: %v", token, err)
	}
	keys := p.keys().Key(parsed.Headers[0].KeyID)
	if parsed.Headers[0].KeyID == "" || len(keys) != 1 {
		p.t.Fatalf("kid %q: %d keys", parsed.Headers[0].KeyID, len(keys))
	}
	claims := map[string]any{}
	if err := parsed.Claims(keys[0].Public().Key, &claims); err != nil {
		p.t.Fatal(err)
	}
	return claims, parsed.Headers[0]
}

func (p *relyingParty) keys() *jose.JSONWebKeySet {
	p.t.Helper()
	set := new(jose.JSONWebKeySet)
	p.readJSON(p.Get("/.well-known/jwks.json", ""), set)
	return set
}

// readJSON decodes a response, which must have status 200 and contain JSON.
func (p *relyingParty) readJSON(r *http.Response, to any) {
	p.t.Helper()
	body := gatewaytest.ReadBody(p.t, r)
	if kind := r.Header.Get("Content-Type"); r.StatusCode != http.StatusOK || !strings.HasPrefix(kind, "application/json") {
		p.t.Fatalf("status %d, Content-Type %q: %s", r.StatusCode, kind, body)
	}
	if err := json.Unmarshal([]byte(body), to); err != nil {
		p.t.Fatalf("%v: %s", err, body)
	}
}

// checkUserinfo checks a userinfo response (OpenID Connect Core §5.1, §5.3).
func (p *relyingParty) checkUserinfo(r *http.Response, id map[string]any) map[string]any {
	p.t.Helper()
	claims := map[string]any{}
	p.readJSON(r, &claims)
	if claims["sub"] != id["sub"] {
		p.t.Errorf("sub %v in userinfo, %v in the ID token", claims["sub"], id["sub"])
	}
	checkStandardClaims(p.t, claims)
	return claims
}

var claimBirthdate = regexp.MustCompile(`^\d{4}(-\d{2}-\d{2})?$`)

// checkStandardClaims checks the JSON types of the standard claims (OpenID Connect Core §5.1).
func checkStandardClaims(t testing.TB, claims map[string]any) {
	t.Helper()
	for name, value := range claims {
		var ok bool
		switch name {
		case "email_verified", "phone_number_verified":
			_, ok = value.(bool)
		case "updated_at", "exp", "iat", "auth_time":
			seconds, number := value.(float64)
			ok = number && seconds > 0 && seconds < 1e11
		case "address":
			_, ok = value.(map[string]any)
		case "amr":
			_, ok = value.([]any)
		case "birthdate":
			text, _ := value.(string)
			ok = claimBirthdate.MatchString(text)
		default:
			text, _ := value.(string)
			ok = text != ""
		}
		if !ok {
			t.Errorf("claim %s: %v", name, value)
		}
	}
}

// tokenResponse is the response from the token endpoint.
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

// tokenRequest returns a request to the token endpoint that uses the client's authentication method; "" means no
// authentication.
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

// assertion returns a client assertion with the claims that Inferno sends (no iat), modified by change.
func (p *relyingParty) assertion(change map[string]any) string {
	p.t.Helper()
	audience := p.audience
	if audience == "" {
		audience = issuer + "/oauth2/token"
	}
	claims := map[string]any{
		"iss": p.client.id, "sub": p.client.id, "aud": audience, "jti": randomSecret(),
		"exp": time.Now().Add(5 * time.Minute).Unix(),
	}
	maps.Copy(claims, change)
	key := jose.SigningKey{Algorithm: jose.SignatureAlgorithm(p.client.key.Algorithm), Key: *p.client.key}
	return josetest.SignClaims(p.t, key, josetest.Header{"typ": "JWT"}, claims)
}

// atToken sends a form to the token endpoint and checks the common requirements
// for responses: JSON and no-store (RFC 6749 §5.1).
func (p *relyingParty) atToken(form url.Values) (int, *tokenResponse) {
	p.t.Helper()
	return p.tokensOf(p.Send(p.tokenRequest("/oauth2/token", form)))
}

func (p *relyingParty) tokensOf(r *http.Response) (int, *tokenResponse) {
	p.t.Helper()
	body, tokens := []byte(gatewaytest.ReadBody(p.t, r)), new(tokenResponse)
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

func refreshForm(token, scope string) url.Values {
	form := url.Values{"grant_type": {"refresh_token"}, "refresh_token": {token}}
	if scope != "" {
		form.Set("scope", scope)
	}
	return form
}

// exchange sends a token request that must succeed and checks the response.
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

// refusedToken sends a token request that must fail and checks the response (RFC 6749 §5.2).
func (p *relyingParty) refusedToken(form url.Values, statuses []int, codes ...string) {
	p.t.Helper()
	status, got := p.atToken(form)
	if !slices.Contains(statuses, status) || !slices.Contains(codes, got.Error) || !errorText.MatchString(got.Description) || got.AccessToken != "" {
		p.t.Errorf("status %d: %+v", status, got)
	}
}

// parameters returns the parameters of an authorization response, which must use the given response mode. There must be no
// parameters where other modes would put them (OpenID Connect Core §3.3.2.5, Multiple Response Types §5, Form Post Response
// Mode §2).
func (p *relyingParty) parameters(a *authorizationResponse, mode string) url.Values {
	p.t.Helper()
	ways := map[string]url.Values{"query": a.query, "fragment": a.fragment, "form_post": a.form}
	for way, values := range ways {
		if way != mode && len(values) > 0 {
			p.t.Errorf("%v came by %s", values, way)
		}
	}
	if len(ways[mode]) == 0 {
		p.t.Fatalf("nothing came by %s: status %d, %s", mode, a.status, a.page)
	}
	for name, values := range ways[mode] {
		if len(values) > 1 {
			p.t.Errorf("%s came %d times", name, len(values))
		}
	}
	return ways[mode]
}

// mode returns the expected response mode, which is the same for success and errors.
func (p *relyingParty) mode() string {
	switch {
	case p.responseMode != "":
		return p.responseMode
	case p.responseType == "code":
		return "query"
	}
	return "fragment"
}

// granted checks the authorization response to a request that must succeed.
func (p *relyingParty) granted(q url.Values, a *authorizationResponse) url.Values {
	p.t.Helper()
	got := p.parameters(a, p.mode())
	p.checkStateAndIssuer(q, got)
	if got.Get("error") != "" {
		p.t.Fatalf("refused: %v", got)
	}
	words := strings.Fields(p.responseType)
	want := map[string]bool{
		"code": slices.Contains(words, "code"), "access_token": slices.Contains(words, "token"),
		"token_type": slices.Contains(words, "token"), "expires_in": slices.Contains(words, "token"), "id_token": slices.Contains(words, "id_token"),
	}
	for name, wanted := range want {
		if got.Has(name) != wanted {
			p.t.Errorf("%s in the answer: %t", name, !wanted)
		}
	}
	if code := got.Get("code"); want["code"] && (estimateEntropy(code) < 128 || !unescaped.MatchString(code)) {
		p.t.Errorf("code %q: %.0f bits", code, estimateEntropy(code))
	}
	return got
}

func (p *relyingParty) checkStateAndIssuer(q, got url.Values) {
	p.t.Helper()
	if got.Get("state") != q.Get("state") || got.Has("state") != q.Has("state") {
		p.t.Errorf("state %q, sent %q", got["state"], q["state"])
	}
	if got.Get("iss") != issuer {
		p.t.Errorf("iss %q", got["iss"])
	}
}

// unescaped matches values that some clients put into a form without percent-encoding.
var unescaped = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// estimateEntropy estimates the entropy of a text from the frequencies of its characters.
func estimateEntropy(text string) (bits float64) {
	counts := map[rune]float64{}
	for _, r := range text {
		counts[r]++
	}
	for _, n := range counts {
		bits -= n * math.Log2(n/float64(len(text)))
	}
	return bits
}

var errorText = regexp.MustCompile(`^[\x20-\x21\x23-\x5b\x5d-\x7e]*$`)

// refused checks the authorization response to a request that must fail with one of
// the given errors (RFC 6749 §4.1.2.1, OpenID Connect Core §3.1.2.6).
func (p *relyingParty) refused(q url.Values, a *authorizationResponse, mode string, codes ...string) {
	p.t.Helper()
	got := p.parameters(a, mode)
	p.checkStateAndIssuer(q, got)
	if !slices.Contains(codes, got.Get("error")) {
		p.t.Errorf("error %q, not one of %q", got.Get("error"), codes)
	}
	if !errorText.MatchString(got.Get("error_description")) {
		p.t.Errorf("error_description %q", got.Get("error_description"))
	}
	for name := range got {
		if !slices.Contains([]string{"error", "error_description", "error_uri", "state", "iss"}, name) {
			p.t.Errorf("%s beside the error", name)
		}
	}
}

// shownError checks that the response is an error page and not a redirect.
func (p *relyingParty) shownError(a *authorizationResponse) {
	p.t.Helper()
	if a.status != http.StatusBadRequest || !strings.Contains(a.page, "This link doesn’t work") || a.query != nil || a.form != nil {
		p.t.Errorf("status %d, query %v, form %v: %s", a.status, a.query, a.form, a.page)
	}
}
