package conformance

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/servertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
)

func moduleServer(p *relyingParty) {
	p.flow(nil)
	second := p.second() // whose redirect URI has a query of its own
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
		p.t.Fatalf("discovery offers %v, and the rest of the module is not ported", algorithms)
	}
	p.skipped = true
}

func (p *relyingParty) discovery() (document map[string]any) {
	p.t.Helper()
	p.readJSON(p.Get("/.well-known/openid-configuration", ""), &document)
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
		p.checkUserinfo(p.Send(r), f.id)
	}
}

func moduleWithoutNonce(p *relyingParty) { p.flow(url.Values{"nonce": {""}}) }

func moduleWithoutNonceFails(p *relyingParty) {
	q := p.request(url.Values{"nonce": {""}})
	p.refused(q, p.ask(q), p.mode(), "invalid_request")
}

// moduleScopes checks that exactly the claims of some scopes are there: in userinfo,
// or in the ID token where there is no userinfo.
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
	p.checkScopes(p.flowOf(q, p.follow(p.Get("/oauth2/authorize?"+strings.Join(pairs, "&"), ""))), "email")
}

func moduleHarmless(change url.Values) func(*relyingParty) {
	return func(p *relyingParty) { p.flow(change) }
}

// twice signs in, then sends a second request, and checks whether the person had to
// sign in again.
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
	q := p.request(url.Values{"prompt": {"none"}, "state": {longState}})
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

func moduleACRValues(p *relyingParty) {
	values := texts(p.discovery()["acr_values_supported"].([]any))
	if acr, _ := p.flow(url.Values{"acr_values": {strings.Join(values, " ")}}).id["acr"].(string); !slices.Contains(values, acr) {
		p.t.Errorf("acr %q, asked for %q", acr, values)
	}
}

func moduleLoginHint(p *relyingParty) {
	q := p.request(url.Values{"login_hint": {"buffy@localhost"}}) // as the suite has it without a configured one
	page := gatewaytest.Read(p.t, p.Get(p.Get("/oauth2/authorize?"+q.Encode(), "").Header.Get("Location"), ""))
	if got := servertest.ReadForm(page).Fields.Get("username"); got != "buffy@localhost" {
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
	p.checkUserinfo(p.Get("/oauth2/userinfo", token), map[string]any{"sub": "alice"})
	time.Sleep(30 * time.Second) // in a bubble
	p.refusedToken(form, badRequest, "invalid_grant")
	if r := p.Get("/oauth2/userinfo", token); r.StatusCode != http.StatusUnauthorized {
		p.t.Errorf("the first access token: %d", r.StatusCode)
	}
}

func moduleRegisteredRedirectURI(p *relyingParty) {
	p.shownError(p.ask(p.request(url.Values{"redirect_uri": {p.client.redirectURI + "/" + unguessable()}})))
}

func modulePostedRequest(p *relyingParty) {
	q := p.request(nil)
	p.flowOf(q, p.follow(p.Post("/oauth2/authorize", q)))
}

func moduleSecretPost(p *relyingParty) {
	if p.client.method = "client_secret_post"; p.registers {
		p = p.registered(registeredAddress, nil)
	}
	p.flow(nil)
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

func modulePKCE(p *relyingParty) {
	p.pkce = true
	p.flow(nil)
}
