package caddymodule

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"html"
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
)

const (
	conformanceIssuer = "https://localhost:8443"
	conformanceBase   = conformanceIssuer + "/fhir/R4"
)

// partyClient is a client as it is registered.
type partyClient struct {
	id, secret, redirectURI string
	method                  string // by which it proves who it is at the token endpoint
	key                     *jose.JSONWebKey
}

// relyingParty is a client and the browser of the person who uses it, before a
// gateway. What it gets it checks as the modules of the plans have in common.
type relyingParty struct {
	gateway
	client       partyClient
	responseType string
	responseMode string // "" for the usual one
	pkce         bool
	audience     string // of client assertions; default: the token endpoint
	logouts      chan string
}

// partyAt is a new browser before a gateway.
func partyAt(t testing.TB, g *gateway, client partyClient) *relyingParty {
	return &relyingParty{
		gateway: gateway{t: t, server: g.server, jar: map[string]string{}, ctx: g.ctx},
		client:  client, responseType: "code",
	}
}

// as is another client in the same browser.
func (p *relyingParty) as(client partyClient) *relyingParty {
	other := *p
	other.client = client
	return &other
}

const partyVerifier = "a-code-verifier-of-the-conformance-tests-_~"

func challengeOf(verifier string) string {
	sum := sha256.Sum256([]byte(verifier))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// request is an authorization request with a new state and nonce; change alters
// it: an empty value removes a parameter.
func (p *relyingParty) request(change url.Values) url.Values {
	q := url.Values{
		"response_type": {p.responseType}, "client_id": {p.client.id}, "redirect_uri": {p.client.redirectURI},
		"scope": {"openid"}, "state": {unguessable()}, "nonce": {unguessable()},
	}
	if p.responseMode != "" {
		q.Set("response_mode", p.responseMode)
	}
	if p.pkce {
		q.Set("code_challenge_method", "S256")
		q.Set("code_challenge", challengeOf(partyVerifier))
	}
	for name, values := range change {
		q[name] = values
		if values[0] == "" {
			q.Del(name)
		}
	}
	return q
}

// authorizationAnswer is where a request led: to the redirect URI by one of three
// ways, or to a page.
type authorizationAnswer struct {
	query, fragment, form url.Values
	status                int
	page                  string
	signIns, consents     int // what the person was asked on the way
}

// ask sends a request by the browser, in which alice signs in and allows all.
func (p *relyingParty) ask(q url.Values) *authorizationAnswer {
	p.t.Helper()
	return p.follow(p.get("/oauth2/authorize?"+q.Encode(), ""))
}

func (p *relyingParty) follow(r *http.Response) *authorizationAnswer {
	p.t.Helper()
	a := new(authorizationAnswer)
	for range 10 {
		location := r.Header.Get("Location")
		if after, ok := strings.CutPrefix(location, p.client.redirectURI); ok {
			p.arrive(a, after)
			return a
		}
		if location != "" {
			r = p.get(location, "")
			continue
		}
		a.status, a.page = r.StatusCode, read(p.t, r)
		form := readHTMLForm(a.page)
		switch {
		case r.StatusCode != http.StatusOK:
			return a
		case form.action == "/oauth2/login":
			a.signIns++
			form.fields.Set("username", "alice")
			form.fields.Set("password", "right")
		case form.action == "/oauth2/consent":
			a.consents++
			form.fields.Set("decision", "allow")
		case form.action == p.client.redirectURI:
			a.form, a.query, a.fragment = form.fields, url.Values{}, url.Values{}
			return a
		default:
			return a
		}
		r = p.post(form.action, form.fields)
	}
	p.t.Fatal("the browser is sent round in a circle")
	return nil
}

// arrive reads what was added to the redirect URI. That has a query of its own,
// where there is one, which must have been kept.
func (p *relyingParty) arrive(a *authorizationAnswer, added string) {
	p.t.Helper()
	query, fragment, _ := strings.Cut(added, "#")
	if query != "" && !strings.HasPrefix(query, "?") && !strings.HasPrefix(query, "&") {
		p.t.Fatalf("%q was added to the redirect URI", added)
	}
	var err1, err2 error
	a.query, err1 = url.ParseQuery(strings.TrimLeft(query, "?&"))
	a.fragment, err2 = url.ParseQuery(fragment)
	if err1 != nil || err2 != nil {
		p.t.Fatalf("%q: %v %v", added, err1, err2)
	}
	a.form = url.Values{}
}

type htmlForm struct {
	action string
	fields url.Values
}

var (
	formTag  = regexp.MustCompile(`<form method="post" action="([^"]*)">`)
	inputTag = regexp.MustCompile(`<input [^>]*?name="([^"]*)"(?: value="([^"]*)")?`)
)

// readHTMLForm reads a page's form as a browser sends it.
func readHTMLForm(page string) htmlForm {
	form := htmlForm{fields: url.Values{}}
	if tag := formTag.FindStringSubmatch(page); tag != nil {
		form.action = html.UnescapeString(tag[1])
	}
	for _, input := range inputTag.FindAllStringSubmatch(page, -1) {
		form.fields.Set(html.UnescapeString(input[1]), html.UnescapeString(input[2]))
	}
	return form
}

// parameters are what came by the way that is right for the request; by the
// others nothing may come, neither code nor token nor error (OpenID Connect Core
// §3.3.2.5, Multiple Response Types §5, Form Post Response Mode §2).
func (p *relyingParty) parameters(a *authorizationAnswer, mode string) url.Values {
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

// mode is how success is answered, and errors too.
func (p *relyingParty) mode() string {
	switch {
	case p.responseMode != "":
		return p.responseMode
	case p.responseType == "code":
		return "query"
	}
	return "fragment"
}

// granted checks the authorization answer to a request that must succeed.
func (p *relyingParty) granted(q url.Values, a *authorizationAnswer) url.Values {
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
	if code := got.Get("code"); want["code"] && (bitsOf(code) < 128 || !unescaped.MatchString(code)) {
		p.t.Errorf("code %q: %.0f bits", code, bitsOf(code))
	}
	return got
}

func (p *relyingParty) checkStateAndIssuer(q, got url.Values) {
	p.t.Helper()
	if got.Get("state") != q.Get("state") || got.Has("state") != q.Has("state") {
		p.t.Errorf("state %q, sent %q", got["state"], q["state"])
	}
	if got.Get("iss") != conformanceIssuer {
		p.t.Errorf("iss %q", got["iss"])
	}
}

// unescaped is what some clients put into a form as it is.
var unescaped = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// bitsOf estimates the entropy of a text by how often its characters occur in it.
func bitsOf(text string) (bits float64) {
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

// refused checks the answer to a request that must fail with one of some errors
// (RFC 6749 §4.1.2.1, OpenID Connect Core §3.1.2.6), by a way.
func (p *relyingParty) refused(q url.Values, a *authorizationAnswer, mode string, codes ...string) {
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

// shownError checks that a request leads to a page that tells of an error, and
// nowhere else.
func (p *relyingParty) shownError(a *authorizationAnswer) {
	p.t.Helper()
	if a.status != http.StatusBadRequest || !strings.Contains(a.page, "This link does not work") || a.query != nil || a.form != nil {
		p.t.Errorf("status %d, query %v, form %v: %s", a.status, a.query, a.form, a.page)
	}
}

// partyTokens are the answer of the token endpoint.
type partyTokens struct {
	AccessToken string          `json:"access_token"`
	TokenType   string          `json:"token_type"`
	ExpiresIn   json.RawMessage `json:"expires_in"`
	Scope       string          `json:"scope"`
	IDToken     string          `json:"id_token"`
	Refresh     string          `json:"refresh_token"`
	Error       string          `json:"error"`
	Description string          `json:"error_description"`
}

// tokenRequest is a request of the token endpoint, by which the client proves
// who it is; the method "" does not.
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

// assertion is a client assertion with what Inferno puts into it: no iat.
func (p *relyingParty) assertion(change map[string]any) string {
	p.t.Helper()
	audience := p.audience
	if audience == "" {
		audience = conformanceIssuer + "/oauth2/token"
	}
	claims := map[string]any{
		"iss": p.client.id, "sub": p.client.id, "aud": audience, "jti": unguessable(),
		"exp": time.Now().Add(5 * time.Minute).Unix(),
	}
	for name, value := range change {
		claims[name] = value
	}
	key := jose.SigningKey{Algorithm: jose.SignatureAlgorithm(p.client.key.Algorithm), Key: *p.client.key}
	return signedWith(p.t, key, claims)
}

func signedWith(t testing.TB, key jose.SigningKey, claims any) string {
	t.Helper()
	signer, err := jose.NewSigner(key, new(jose.SignerOptions).WithType("JWT"))
	if err != nil {
		t.Fatal(err)
	}
	token, err := jwt.Signed(signer).Claims(claims).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// atToken sends a form to the token endpoint and checks what all its answers have
// in common: JSON, not to be stored (RFC 6749 §5.1).
func (p *relyingParty) atToken(form url.Values) (int, *partyTokens) {
	p.t.Helper()
	return p.tokensOf(p.send(p.tokenRequest("/oauth2/token", form)))
}

func (p *relyingParty) tokensOf(r *http.Response) (int, *partyTokens) {
	p.t.Helper()
	body, tokens := []byte(read(p.t, r)), new(partyTokens)
	if err := json.Unmarshal(body, tokens); err != nil {
		p.t.Fatalf("status %d: %v: %s", r.StatusCode, err, body)
	}
	kind, store := r.Header.Get("Content-Type"), r.Header.Get("Cache-Control")
	if kind != "application/json" || !strings.Contains(store, "no-store") || r.Header.Get("Pragma") != "no-cache" {
		p.t.Errorf("Content-Type %q, Cache-Control %q, Pragma %q", kind, store, r.Header.Get("Pragma"))
	}
	return r.StatusCode, tokens
}

func (p *relyingParty) codeForm(code string) url.Values {
	form := url.Values{"grant_type": {"authorization_code"}, "code": {code}, "redirect_uri": {p.client.redirectURI}}
	if p.pkce {
		form.Set("code_verifier", partyVerifier)
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

// exchange checks the token endpoint's answer to a form that must succeed.
func (p *relyingParty) exchange(form url.Values) *partyTokens {
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

// refusedToken checks the token endpoint's answer to a form that must fail (RFC
// 6749 §5.2).
func (p *relyingParty) refusedToken(form url.Values, statuses []int, codes ...string) {
	p.t.Helper()
	status, got := p.atToken(form)
	if !slices.Contains(statuses, status) || !slices.Contains(codes, got.Error) || !errorText.MatchString(got.Description) || got.AccessToken != "" {
		p.t.Errorf("status %d: %+v", status, got)
	}
}

// signInFlow is what one sign-in gave.
type signInFlow struct {
	*authorizationAnswer
	request  url.Values
	tokens   *partyTokens
	id       map[string]any // claims of the ID token
	userinfo map[string]any // nil where there is no access token
}

// flow signs in by a request and checks all that comes of it.
func (p *relyingParty) flow(change url.Values) *signInFlow {
	p.t.Helper()
	q := p.request(change)
	return p.flowOf(q, p.ask(q))
}

// flowOf is flow for an answer.
func (p *relyingParty) flowOf(q url.Values, a *authorizationAnswer) *signInFlow {
	p.t.Helper()
	got := p.granted(q, a)
	f := &signInFlow{authorizationAnswer: a, request: q}
	if code := got.Get("code"); code != "" {
		f.tokens = p.exchange(p.codeForm(code))
	} else {
		f.tokens = &partyTokens{AccessToken: got.Get("access_token"), IDToken: got.Get("id_token")}
	}
	f.id = p.checkIDToken(q, f.tokens)
	if f.tokens.AccessToken != "" {
		f.userinfo = p.checkUserinfo(p.get("/oauth2/userinfo", f.tokens.AccessToken), f.id)
	}
	return f
}

// checkIDToken checks an ID token as every module does (OpenID Connect Core
// §3.1.3.7, §3.2.2.11).
func (p *relyingParty) checkIDToken(q url.Values, tokens *partyTokens) map[string]any {
	p.t.Helper()
	claims, header := p.verified(tokens.IDToken)
	if header.Algorithm != "RS256" {
		p.t.Errorf("alg %q", header.Algorithm)
	}
	number := func(name string) int64 { v, _ := claims[name].(float64); return int64(v) }
	now := time.Now().Unix()
	sub, _ := claims["sub"].(string)
	switch {
	case claims["iss"] != conformanceIssuer, claims["aud"] != p.client.id, sub == "", len(sub) > 255:
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

// checkUnasked lets no claims about the person into an ID token that were not
// asked for: by name, or by a scope where there is no userinfo (§5.4).
func (p *relyingParty) checkUnasked(q url.Values, claims map[string]any) {
	p.t.Helper()
	allowed := []string{"iss", "sub", "aud", "exp", "iat", "auth_time", "nonce", "at_hash", "sid", "amr"}
	for _, scope := range strings.Fields(q.Get("scope")) {
		if p.responseType == "id_token" || scope == "fhirUser" {
			allowed = append(allowed, claimsByScope[scope]...)
		}
	}
	for name := range claims {
		if !slices.Contains(allowed, name) && !strings.Contains(q.Get("claims"), `"id_token":{"`+name+`"`) {
			p.t.Errorf("claim %s was not asked for", name)
		}
	}
}

// claimsByScope are those of OpenID Connect Core §5.4 that alice has, which is all
// but the names that nobody has.
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

// verified are the claims and the header of a token, whose signature is by the
// published key with its kid.
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
	p.readJSON(p.get("/.well-known/jwks.json", ""), set)
	return set
}

// readJSON reads an answer that must be 200 and JSON.
func (p *relyingParty) readJSON(r *http.Response, to any) {
	p.t.Helper()
	body := read(p.t, r)
	if kind := r.Header.Get("Content-Type"); r.StatusCode != http.StatusOK || !strings.HasPrefix(kind, "application/json") {
		p.t.Fatalf("status %d, Content-Type %q: %s", r.StatusCode, kind, body)
	}
	if err := json.Unmarshal([]byte(body), to); err != nil {
		p.t.Fatalf("%v: %s", err, body)
	}
}

// checkUserinfo checks an answer of userinfo (OpenID Connect Core §5.1, §5.3).
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

// checkStandardClaims compares claims with the types of OpenID Connect Core §5.1.
func checkStandardClaims(t testing.TB, claims map[string]any) {
	t.Helper()
	for name, value := range claims {
		ok := false
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
