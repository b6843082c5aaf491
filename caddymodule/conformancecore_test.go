package caddymodule

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
)

func moduleServer(p *relyingParty) {
	p.flow(nil)
	second := p.as(secondClient) // whose redirect URI has a query of its own
	if f := second.flow(nil); f.signIns != 0 {
		p.t.Error("alice had to sign in for the second client")
	}
}

func moduleResponseTypeMissing(p *relyingParty) {
	q := p.request(url.Values{"response_type": {""}})
	mode := "query" // nobody said anything else
	if p.responseMode != "" {
		mode = p.responseMode
	}
	p.refused(q, p.ask(q), mode, "invalid_request", "unsupported_response_type")
}

func moduleIDTokenSignature(p *relyingParty) {
	f := p.flow(nil) // checks the signature
	parts := strings.Split(f.tokens.IDToken, ".")
	var header map[string]string
	text, err := base64.RawURLEncoding.DecodeString(parts[0])
	if err == nil {
		err = json.Unmarshal(text, &header)
	}
	if err != nil || !maps.Equal(header, map[string]string{"alg": "RS256", "kid": header["kid"], "typ": "JWT"}) {
		p.t.Errorf("header %v, %v", header, err)
	}
}

func moduleIDTokenUnsigned(p *relyingParty) {
	if algorithms := p.discovery()["id_token_signing_alg_values_supported"].([]any); slices.Contains(algorithms, "none") {
		p.t.Errorf("discovery offers %v", algorithms)
	}
}

func (p *relyingParty) discovery() (document map[string]any) {
	p.t.Helper()
	p.readJSON(p.get("/.well-known/openid-configuration", ""), &document)
	return document
}

func moduleUserinfo(method string, inHeader bool) func(*relyingParty) {
	return func(p *relyingParty) {
		f := p.flow(nil)
		r := httptest.NewRequest(method, "/oauth2/userinfo", nil)
		if inHeader {
			r.Header.Set("Authorization", "Bearer "+f.tokens.AccessToken)
		} else {
			form := url.Values{"access_token": {f.tokens.AccessToken}}
			r = httptest.NewRequest(method, "/oauth2/userinfo", strings.NewReader(form.Encode()))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		}
		p.checkUserinfo(p.send(r), f.id)
	}
}

func moduleWithoutNonce(p *relyingParty) { p.flow(url.Values{"nonce": {""}}) }

func moduleWithoutNonceFails(p *relyingParty) {
	q := p.request(url.Values{"nonce": {""}})
	p.refused(q, p.ask(q), p.mode(), "invalid_request")
}

// moduleScopes checks that the claims of some scopes are all there, and no
// others: in userinfo, or in the ID token where there is no userinfo.
func moduleScopes(scopes ...string) func(*relyingParty) {
	return func(p *relyingParty) {
		p.checkScopes(p.flow(url.Values{"scope": {"openid " + strings.Join(scopes, " ")}}), scopes...)
	}
}

func (p *relyingParty) checkScopes(f *signInFlow, scopes ...string) {
	p.t.Helper()
	claims := f.userinfo
	if claims == nil {
		claims = f.id
		checkStandardClaims(p.t, claims)
	}
	want := []string{"sub"}
	for _, scope := range scopes {
		want = append(want, claimsByScope[scope]...)
	}
	for _, name := range want {
		if claims[name] == nil {
			p.t.Errorf("no claim %s", name)
		}
	}
	if f.userinfo != nil && len(claims) != len(want) {
		p.t.Errorf("userinfo has %v, asked for %v", claims, want)
	}
}

func moduleAlternateOrder(p *relyingParty) {
	q := p.request(url.Values{"scope": {"email openid"}})
	names := slices.Sorted(maps.Keys(q))
	slices.Reverse(names)
	var pairs []string
	for _, name := range names {
		pairs = append(pairs, url.Values{name: q[name]}.Encode())
	}
	p.checkScopes(p.flowOf(q, p.follow(p.get("/oauth2/authorize?"+strings.Join(pairs, "&"), ""))), "email")
}

func moduleHarmless(change url.Values) func(*relyingParty) {
	return func(p *relyingParty) { p.flow(change) }
}

// twice signs in, and once more with more in the request. It says whether the
// person had to sign in again.
func (p *relyingParty) twice(wait time.Duration, change func(first *signInFlow) url.Values, again bool) (first, second *signInFlow) {
	p.t.Helper()
	first = p.flow(nil)
	if wait > 0 {
		time.Sleep(wait) // in a bubble
	}
	second = p.flow(change(first))
	if signedIn := second.signIns > 0; signedIn != again || second.consents > 0 {
		p.t.Errorf("had to sign in again: %t", signedIn)
	}
	same := first.id["auth_time"] == second.id["auth_time"]
	if first.id["sub"] != second.id["sub"] || same == again {
		p.t.Errorf("ID tokens %v, %v", first.id, second.id)
	}
	return first, second
}

func with(change url.Values) func(*signInFlow) url.Values {
	return func(*signInFlow) url.Values { return change }
}

func modulePromptLogin(p *relyingParty) {
	p.twice(time.Second, with(url.Values{"prompt": {"login"}}), true)
}

func modulePromptNoneNotLoggedIn(p *relyingParty) {
	q := p.request(url.Values{"prompt": {"none"}})
	p.refused(q, p.ask(q), p.mode(), "login_required", "interaction_required")
}

func modulePromptNoneLoggedIn(p *relyingParty) {
	p.twice(0, with(url.Values{"prompt": {"none"}}), false)
}

func moduleMaxAge1(p *relyingParty) {
	_, second := p.twice(2*time.Second, with(url.Values{"max_age": {"1"}}), true)
	if at := int64(second.id["auth_time"].(float64)); time.Now().Unix()-at > 5 {
		p.t.Errorf("auth_time %d s ago", time.Now().Unix()-at)
	}
}

func moduleMaxAge10000(p *relyingParty) {
	p.twice(time.Second, with(url.Values{"max_age": {"10000"}}), false)
}

func moduleIDTokenHint(p *relyingParty) {
	p.twice(0, func(first *signInFlow) url.Values {
		return url.Values{"prompt": {"none"}, "id_token_hint": {first.tokens.IDToken}}
	}, false)
}

func moduleLoginHint(p *relyingParty) {
	q := p.request(url.Values{"login_hint": {"alice"}})
	page := read(p.t, p.get(p.get("/oauth2/authorize?"+q.Encode(), "").Header.Get("Location"), ""))
	if got := readHTMLForm(page).fields.Get("username"); got != "alice" {
		p.t.Errorf("the page begins with %q", got)
	}
	p.flowOf(q, p.ask(q))
}

var badRequest = []int{http.StatusBadRequest}

func moduleCodeReuse(p *relyingParty) {
	q := p.request(nil)
	form := p.codeForm(p.granted(q, p.ask(q)).Get("code"))
	p.exchange(form)
	p.refusedToken(form, badRequest, "invalid_grant")
}

func moduleCodeReuseLater(p *relyingParty) {
	q := p.request(nil)
	form := p.codeForm(p.granted(q, p.ask(q)).Get("code"))
	token := p.exchange(form).AccessToken
	p.checkUserinfo(p.get("/oauth2/userinfo", token), map[string]any{"sub": "alice"})
	time.Sleep(30 * time.Second) // in a bubble
	p.refusedToken(form, badRequest, "invalid_grant")
	if r := p.get("/oauth2/userinfo", token); r.StatusCode != http.StatusUnauthorized {
		p.t.Errorf("the first access token: %d", r.StatusCode)
	}
}

func moduleRegisteredRedirectURI(p *relyingParty) {
	p.shownError(p.ask(p.request(url.Values{"redirect_uri": {p.client.redirectURI + "/" + unguessable()}})))
}

func modulePostedRequest(p *relyingParty) {
	q := p.request(nil)
	p.flowOf(q, p.follow(p.post("/oauth2/authorize", q)))
}

func moduleSecretPost(p *relyingParty) {
	p.client.method = "client_secret_post"
	p.flow(nil)
}

func moduleRequestURI(p *relyingParty) {
	q := p.request(nil)
	fetched := make(chan string, 10)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { fetched <- r.URL.Path }))
	defer server.Close()
	q.Set("request_uri", server.URL+"/request.jwt")
	p.refused(q, p.ask(q), p.mode(), "request_uri_not_supported")
	if len(fetched) > 0 {
		p.t.Error("the request_uri was fetched")
	}
}

func moduleRequestObject(p *relyingParty) {
	q := p.request(nil)
	q.Set("request", requestObject(q))
	p.refused(q, p.ask(q), p.mode(), "request_not_supported")
	if supported := p.discovery()["request_parameter_supported"]; supported != false {
		p.t.Errorf("request_parameter_supported %v", supported)
	}
}

// requestObject is a request as an unsigned JWT (OpenID Connect Core §6.1).
func requestObject(q url.Values) string {
	claims := map[string]string{"iss": q.Get("client_id"), "aud": conformanceIssuer}
	for name := range q {
		claims[name] = q.Get(name)
	}
	text, _ := json.Marshal(claims) // strings cannot fail
	return base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`)) + "." + base64.RawURLEncoding.EncodeToString(text) + "."
}

func moduleClaimsEssential(p *relyingParty) {
	member := "userinfo"
	if p.responseType == "id_token" {
		member = "id_token"
	}
	f := p.flow(url.Values{"claims": {`{"` + member + `":{"name":{"essential":true}}}`}})
	claims := f.userinfo
	if member == "id_token" {
		claims = f.id
	}
	if claims["name"] != "Alice Adams" {
		p.t.Errorf("claims %v", claims)
	}
}

func moduleRequestObjectRedirectURI(p *relyingParty) {
	q := p.request(nil)
	q.Set("request", requestObject(q))
	q.Set("redirect_uri", "https://rp.example/"+unguessable())
	p.shownError(p.ask(q))
}

func moduleRefreshToken(p *relyingParty) {
	refreshTwo(p, p.as(secondClient))
}

// refreshTwo refreshes as two clients, and the first with the token of the second.
func refreshTwo(first, second *relyingParty) {
	first.refreshed(true)
	token := second.refreshed(false)
	first.refusedToken(formOfRefresh(token, ""), badRequest, "invalid_grant")
	second.exchange(formOfRefresh(token, "")) // that changed nothing
}

// visibleText is what a refresh token may be made of (RFC 6749 §A.17).
var visibleText = regexp.MustCompile(`^[\x20-\x7e]+$`)

// refreshed signs in, refreshes and compares what that gives with what the
// sign-in gave (OpenID Connect Core §12.2). It returns the newest refresh token.
func (p *relyingParty) refreshed(withScope bool) string {
	p.t.Helper()
	scope := "openid offline_access"
	first := p.flow(url.Values{"scope": {scope}, "prompt": {"consent"}})
	if first.consents != 1 || !visibleText.MatchString(first.tokens.Refresh) {
		p.t.Fatalf("asked for consent %d times, refresh token %q", first.consents, first.tokens.Refresh)
	}
	if grants := p.discovery()["grant_types_supported"].([]any); !slices.Contains(grants, "refresh_token") {
		p.t.Errorf("grant_types_supported %v", grants)
	}
	asked := ""
	if withScope {
		asked = scope
	}
	time.Sleep(time.Second) // in a bubble, so that iat differs
	tokens := p.exchange(formOfRefresh(first.tokens.Refresh, asked))
	if tokens.AccessToken == first.tokens.AccessToken || tokens.Refresh == "" {
		p.t.Error("the same access token, or no refresh token")
	}
	id := p.checkIDToken(nil, tokens)
	for _, name := range []string{"iss", "sub", "aud", "auth_time"} {
		if id[name] != first.id[name] {
			p.t.Errorf("%s: %v, was %v", name, id[name], first.id[name])
		}
	}
	if id["nonce"] != nil || id["iat"].(float64) <= first.id["iat"].(float64) {
		p.t.Errorf("claims %v", id)
	}
	p.checkUserinfo(p.get("/oauth2/userinfo", tokens.AccessToken), id)
	return tokens.Refresh
}

func modulePKCE(p *relyingParty) {
	p.pkce = true
	p.flow(nil)
}
