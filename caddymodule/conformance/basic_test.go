package conformance

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

	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/josetest"
)

// coreModules are the modules shared by the plans for the code flow, the implicit flow and form_post, in the order of the basic
// plan.
var coreModules = []testModule{
	{id: "oidcc-server", checks: "sign-in: state, iss, entropy of the code, ID token, at_hash, userinfo, the same sub", run: moduleServer},
	{id: "oidcc-response-type-missing", checks: "`invalid_request` at the redirect URI", run: moduleResponseTypeMissing},
	{id: "oidcc-idtoken-signature", checks: "RS256, with the one published key that has the token's kid", registered: true, run: moduleIDTokenSignature},
	{id: "oidcc-idtoken-unsigned", checks: "ID tokens with alg `none`; skipped because discovery does not offer them", registered: true, run: moduleIDTokenUnsigned},
	{id: "oidcc-userinfo-get", checks: "userinfo by GET", run: moduleUserinfo(http.MethodGet, true)},
	{id: "oidcc-userinfo-post-header", checks: "userinfo by POST, token in the header", run: moduleUserinfo(http.MethodPost, true)},
	{id: "oidcc-userinfo-post-body", checks: "userinfo by POST, token in the form", run: moduleUserinfo(http.MethodPost, false)},
	{id: "oidcc-ensure-request-without-nonce-succeeds-for-code-flow", checks: "no nonce sent, none in the ID token", run: moduleWithoutNonce},
	{id: "oidcc-ensure-request-without-nonce-fails", checks: "`invalid_request`", run: moduleWithoutNonceFails},
	{id: "oidcc-scope-profile", checks: "all claims of the scope, of the right types, and no others", run: moduleScopes("profile")},
	{id: "oidcc-scope-email", checks: "as `oidcc-scope-profile`", run: moduleScopes("email")},
	{id: "oidcc-scope-address", checks: "as `oidcc-scope-profile`", run: moduleScopes("address")},
	{id: "oidcc-scope-phone", checks: "as `oidcc-scope-profile`", run: moduleScopes("phone")},
	{id: "oidcc-scope-all", checks: "all claims of the four scopes, of the right types, and no others", run: moduleScopes("profile", "email", "address", "phone")},
	{id: "oidcc-alternate-happy-flow", checks: "`openid` last in the scope, parameters in another order", run: moduleAlternateOrder},
	{id: "oidcc-display-page", checks: "no error", run: moduleHarmless(url.Values{"display": {"page"}})},
	{id: "oidcc-display-popup", checks: "no error", run: moduleHarmless(url.Values{"display": {"popup"}})},
	{id: "oidcc-prompt-login", checks: "the person signs in again; `auth_time` changes", waits: true, run: modulePromptLogin},
	{id: "oidcc-prompt-none-not-logged-in", checks: "`login_required`, without a page", run: modulePromptNoneNotLoggedIn},
	{id: "oidcc-prompt-none-logged-in", checks: "no page; the same `sub` and `auth_time`", run: modulePromptNoneLoggedIn},
	{id: "oidcc-max-age-1", checks: "2 s later: the person signs in again; `auth_time` is later and recent", waits: true, run: moduleMaxAge1},
	{id: "oidcc-max-age-10000", checks: "no page; the same `sub` and `auth_time`", waits: true, run: moduleMaxAge10000},
	{id: "oidcc-ensure-request-with-unknown-parameter-succeeds", checks: "ignored", run: moduleHarmless(url.Values{"extra": {"foobar"}})},
	{id: "oidcc-id-token-hint", checks: "with `prompt=none`: no page; the same `sub` and `auth_time`", run: moduleIDTokenHint},
	{id: "oidcc-login-hint", checks: "shown on the sign-in page", run: moduleLoginHint},
	{id: "oidcc-ui-locales", checks: "no error", run: moduleHarmless(url.Values{"ui_locales": {"se fr-CA"}})},
	{id: "oidcc-claims-locales", checks: "no error", run: moduleHarmless(url.Values{"claims_locales": {"se"}})},
	{id: "oidcc-ensure-request-with-acr-values-succeeds", checks: "all that discovery lists: no error, and `acr` is one of them", run: moduleACRValues},
	{id: "oidcc-codereuse", checks: "a second use of the code, immediately: `invalid_grant`", run: moduleCodeReuse},
	{id: "oidcc-codereuse-30seconds", checks: "a second use 30 s later: `invalid_grant`, and the first access token is revoked", waits: true, run: moduleCodeReuseLater},
	{id: "oidcc-ensure-registered-redirect-uri", checks: "an unregistered redirect URI: an error page, no redirect", run: moduleRegisteredRedirectURI},
	{id: "oidcc-ensure-post-request-succeeds", checks: "the request by POST (with `authorize_post`)", run: modulePostedRequest},
	{id: "oidcc-server-client-secret-post", checks: "as `oidcc-server`, the secret in the form", run: moduleSecretPost},
	{id: "oidcc-request-uri-unsigned-supported-correctly-or-rejected-as-unsupported", checks: "a registered `request_uri` is fetched and answered", registered: true, run: moduleRequestURIUnsigned},
	{id: "oidcc-unsigned-request-object-supported-correctly-or-rejected-as-unsupported", checks: "answered, or `request_not_supported` in the response mode that the object requests", run: moduleRequestObject},
	{id: "oidcc-claims-essential", checks: "`name` requested by the parameter `claims` is returned, only where it was requested", run: moduleClaimsEssential},
	{id: "oidcc-ensure-request-object-with-redirect-uri", checks: "a request object with a different redirect URI than the query: the object's, or an error page", run: moduleRequestObjectRedirectURI},
	{id: "oidcc-refresh-token", checks: "new tokens for the same person; refused to another client", waits: true, run: moduleRefreshToken},
	{id: "oidcc-ensure-request-with-valid-pkce-succeeds", checks: "S256", run: modulePKCE},
}

// coreModulesWithout returns coreModules except the ones with the given ids.
func coreModulesWithout(ids ...string) []testModule {
	return slices.DeleteFunc(slices.Clone(coreModules), func(m testModule) bool { return slices.Contains(ids, m.id) })
}

func coreModulesOnly(ids ...string) []testModule {
	return slices.DeleteFunc(slices.Clone(coreModules), func(m testModule) bool { return !slices.Contains(ids, m.id) })
}

func basicPlan() testPlan {
	return testPlan{
		name:    "oidcc-basic-certification-test-plan",
		text:    "`response_type=code`, `client_secret_basic`. Errors come in the query.",
		modules: coreModulesWithout("oidcc-ensure-request-without-nonce-fails"), variants: staticAndDynamic(func(*relyingParty) {}),
	}
}

func moduleServer(p *relyingParty) {
	p.flow(nil)
	second := p.second() // registered with a redirect URI that has a query
	if f := second.flow(nil); f.signIns != 0 {
		p.t.Error("alice had to sign in for the second client")
	}
}

func moduleResponseTypeMissing(p *relyingParty) {
	q := p.request(url.Values{"response_type": {""}})
	mode := "query" // default response mode of the code flow
	if p.responseMode != "" {
		mode = p.responseMode
	}
	p.refused(q, p.ask(q), mode, "invalid_request", "unsupported_response_type")
}

func moduleIDTokenSignature(p *relyingParty) {
	f := p.flow(nil) // flow verifies the signature of the ID token
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

// moduleScopes checks that exactly the claims of the given scopes are returned: from userinfo or, if there is no access token,
// in the ID token.
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
		p.t.Errorf("userinfo has %v, requested %v", claims, want)
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

// twice signs in, sends a second request after wait, and checks whether the user had to sign in again.
func (p *relyingParty) twice(wait time.Duration, change func(first *signInFlow) url.Values, again bool) (first, second *signInFlow) {
	p.t.Helper()
	first = p.flow(nil)
	if wait > 0 {
		time.Sleep(wait) // returns immediately in a synctest bubble
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

func withParameters(change url.Values) func(*signInFlow) url.Values {
	return func(*signInFlow) url.Values { return change }
}

func modulePromptLogin(p *relyingParty) {
	p.twice(time.Second, withParameters(url.Values{"prompt": {"login"}}), true)
}

func modulePromptNoneNotLoggedIn(p *relyingParty) {
	q := p.request(url.Values{"prompt": {"none"}, "state": {longState}})
	p.refused(q, p.ask(q), p.mode(), "login_required", "interaction_required")
}

func modulePromptNoneLoggedIn(p *relyingParty) {
	p.twice(0, withParameters(url.Values{"prompt": {"none"}}), false)
}

func moduleMaxAge1(p *relyingParty) {
	_, second := p.twice(2*time.Second, withParameters(url.Values{"max_age": {"1"}}), true)
	if at := int64(second.id["auth_time"].(float64)); time.Now().Unix()-at > 5 {
		p.t.Errorf("auth_time %d s ago", time.Now().Unix()-at)
	}
}

func moduleMaxAge10000(p *relyingParty) {
	p.twice(time.Second, withParameters(url.Values{"max_age": {"10000"}}), false)
}

func moduleIDTokenHint(p *relyingParty) {
	p.twice(0, func(first *signInFlow) url.Values {
		return url.Values{"prompt": {"none"}, "id_token_hint": {first.tokens.IDToken}}
	}, false)
}

func moduleACRValues(p *relyingParty) {
	values := texts(p.discovery()["acr_values_supported"].([]any))
	if acr, _ := p.flow(url.Values{"acr_values": {strings.Join(values, " ")}}).id["acr"].(string); !slices.Contains(values, acr) {
		p.t.Errorf("acr %q, requested %q", acr, values)
	}
}

func moduleLoginHint(p *relyingParty) {
	q := p.request(url.Values{"login_hint": {"buffy@localhost"}}) // the suite's default login_hint
	page := gatewaytest.ReadBody(p.t, p.Get(p.Get("/oauth2/authorize?"+q.Encode(), "").Header.Get("Location"), ""))
	if got := authorizetest.ReadForm(page).Fields.Get("username"); got != "buffy@localhost" {
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
	time.Sleep(30 * time.Second) // returns immediately in a synctest bubble
	p.refusedToken(form, badRequest, "invalid_grant")
	if r := p.Get("/oauth2/userinfo", token); r.StatusCode != http.StatusUnauthorized {
		p.t.Errorf("the first access token: %d", r.StatusCode)
	}
}

func moduleRegisteredRedirectURI(p *relyingParty) {
	p.shownError(p.ask(p.request(url.Values{"redirect_uri": {p.client.redirectURI + "/" + randomSecret()}})))
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

const offlineScope = "openid offline_access"

// moduleRefreshToken refreshes the tokens of two clients. Then the first client sends the second client's token, including the
// scope, as the suite's RefreshTokenRequestExpectingErrorSteps does.
func moduleRefreshToken(p *relyingParty) {
	first, second := p, p.as(secondClient)
	if p.registers {
		refreshes := map[string]any{"grant_types": []string{"authorization_code", "refresh_token"}}
		first, second = p.registered(registeredAddress, refreshes), p.registered(secondClient.redirectURI, refreshes)
	}
	first.refreshed(offlineScope, nil)
	token := second.refreshed("", nil)
	first.refusedToken(refreshForm(token, offlineScope), badRequest, "invalid_grant")
	second.exchange(refreshForm(token, "")) // the rejected request did not invalidate the token
}

// visibleText matches the characters allowed in tokens (RFC 6749 §A.12, §A.17).
var visibleText = regexp.MustCompile(`^[\x20-\x7e]+$`)

// refreshed signs in, refreshes the tokens, and compares the two token responses (OpenID Connect Core §12.2), as the suite's
// RefreshTokenRequestSteps does. It returns the newest refresh token.
func (p *relyingParty) refreshed(scope string, meanwhile func()) string {
	p.t.Helper()
	first := p.flow(url.Values{"scope": {offlineScope}, "prompt": {"consent"}})
	if first.consents != 1 || !visibleText.MatchString(first.tokens.Refresh) {
		p.t.Fatalf("%d consent pages, refresh token %q", first.consents, first.tokens.Refresh)
	}
	if !p.discovers("grant_types_supported", "refresh_token") {
		p.t.Error("discovery does not offer it")
	}
	if meanwhile != nil {
		meanwhile()
	}
	time.Sleep(time.Second) // so that iat differs; returns immediately in a synctest bubble
	tokens := p.exchange(refreshForm(first.tokens.Refresh, scope))
	if tokens.AccessToken == first.tokens.AccessToken {
		p.t.Error("the same access token")
	}
	for _, token := range []string{tokens.AccessToken, tokens.Refresh} {
		if !visibleText.MatchString(token) || estimateEntropy(token) < 128 {
			p.t.Errorf("token %q: %.0f bits", token, estimateEntropy(token))
		}
	}
	id := p.checkIDToken(nil, tokens)
	for _, name := range []string{"iss", "sub", "aud", "azp", "auth_time"} {
		if id[name] != first.id[name] {
			p.t.Errorf("%s: %v, was %v", name, id[name], first.id[name])
		}
	}
	if id["nonce"] != nil || id["iat"].(float64) <= first.id["iat"].(float64) {
		p.t.Errorf("claims %v", id)
	}
	p.checkUserinfo(p.Get("/oauth2/userinfo", tokens.AccessToken), id)
	return tokens.Refresh
}

// implicitPlans returns the implicit plan with both response types, and the userinfo modules, which run only with `id_token
// token`.
func implicitPlans(name, mode, text string) []testPlan {
	with := func(responseType string) variant {
		return variant{responseType, func(p *relyingParty) { p.responseType, p.responseMode = responseType, mode }}
	}
	once := []string{"oidcc-response-type-missing", "oidcc-userinfo-get", "oidcc-userinfo-post-header", "oidcc-userinfo-post-body"}
	codeOnly := []string{ // modules only for the code flow or for self-registered clients
		"oidcc-request-uri-unsigned-supported-correctly-or-rejected-as-unsupported",
		"oidcc-idtoken-signature", "oidcc-idtoken-unsigned", "oidcc-ensure-request-without-nonce-succeeds-for-code-flow", "oidcc-codereuse",
		"oidcc-codereuse-30seconds", "oidcc-ensure-post-request-succeeds", "oidcc-server-client-secret-post",
		"oidcc-refresh-token", "oidcc-ensure-request-with-valid-pkce-succeeds",
	}
	return []testPlan{{
		name: name, text: text, modules: coreModulesWithout(append(codeOnly, once...)...),
		variants: []variant{with("id_token"), with("id_token token")},
	}, {
		name: name + ", `id_token token` alone", text: "Modules that the plan runs only with this response type.",
		modules: coreModulesOnly(once...), variants: singleVariant(with("id_token token").become),
	}}
}

func implicitPlan() []testPlan {
	return implicitPlans("oidcc-implicit-certification-test-plan", "", "Responses and errors come in the fragment, except the error for a missing `response_type`.")
}

func formPostPlans() []testPlan {
	basic := basicPlan()
	basic.name = "oidcc-formpost-basic-certification-test-plan"
	basic.text = "The basic plan with `response_mode=form_post`: responses and errors come only in a posted form."
	basic.variants = staticAndDynamic(func(p *relyingParty) { p.responseMode = "form_post" })
	return append([]testPlan{basic}, implicitPlans("oidcc-formpost-implicit-certification-test-plan", "form_post",
		"The implicit plan with `response_mode=form_post`.")...)
}

// objectRequest returns a request with a request object. Outside the object, it contains only the parameters that OAuth
// requires and those with different values, as the suite's AbstractBuildRequestObjectRedirectToAuthorizationEndpoint does:
// response_mode, state and nonce are only in the object.
func objectRequest(name, value string, inside, outside url.Values) url.Values {
	q := url.Values{name: {value}}
	for key := range outside {
		if slices.Contains([]string{"response_type", "client_id", "scope", "redirect_uri"}, key) || outside.Get(key) != inside.Get(key) {
			q.Set(key, outside.Get(key))
		}
	}
	return q
}

// objectClaims returns the claims of a request object (OpenID Connect Core §6.1). As in the suite, unsigned objects have no iss
// or aud.
func objectClaims(q url.Values) map[string]any {
	claims := map[string]any{}
	for name := range q {
		claims[name] = q.Get(name)
	}
	return claims
}

func unsignedObject(q url.Values) string {
	text, _ := json.Marshal(objectClaims(q)) // cannot fail: all claims are strings
	return base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`)) + "." + base64.RawURLEncoding.EncodeToString(text) + "."
}

// discovers reports whether a list in the discovery document contains the word.
func (p *relyingParty) discovers(list, word string) bool {
	words, _ := p.discovery()[list].([]any)
	return slices.Contains(words, any(word))
}

// skipsUnsigned skips a module if the list of algorithms in the discovery document lacks "none", as the suite's
// skipTestIfNoneUnsupported does.
func (p *relyingParty) skipsUnsigned() bool {
	p.skipped = p.discovery()["request_object_signing_alg_values_supported"] != nil && !p.discovers("request_object_signing_alg_values_supported", "none")
	return p.skipped
}

// moduleRequestObject expects success with the response_mode of the object, or an error if request objects are not supported.
func moduleRequestObject(p *relyingParty) {
	if p.skipsUnsigned() {
		return
	}
	q := p.request(nil)
	a := p.ask(objectRequest("request", unsignedObject(q), q, q))
	if p.parameters(a, p.mode()).Get("error") == "request_not_supported" {
		p.refused(q, a, p.mode(), "request_not_supported")
		p.skipped = true
		return
	}
	if p.discovery()["request_parameter_supported"] != true {
		p.t.Error("discovery does not offer it")
	}
	p.flowOf(q, a)
}

// moduleRequestObjectRedirectURI sends a different redirect URI outside the object. The response must use the redirect URI of
// the object or be an error page.
func moduleRequestObjectRedirectURI(p *relyingParty) {
	if p.skipsUnsigned() {
		return
	}
	inside := p.request(nil)
	outside := maps.Clone(inside)
	outside.Set("redirect_uri", p.client.redirectURI+"_invalid")
	a := p.ask(objectRequest("request", unsignedObject(inside), inside, outside))
	if !p.registers {
		p.shownError(a)
		return
	}
	p.flowOf(inside, a)
}

// byReference registers a request_uri and signs in with the request object published at this URI.
func (p *relyingParty) byReference(metadata map[string]any, object func(*relyingParty, url.Values) string) {
	p.t.Helper()
	if p.discovery()["request_uri_parameter_supported"] != true {
		p.t.Error("discovery does not offer it")
	}
	path := "/requesturi/" + randomSecret()
	all := map[string]any{"request_uris": []string{p.server.URL + path}}
	maps.Copy(all, metadata)
	client := p.registered(registeredAddress, all)
	q := client.request(nil)
	uri := p.server.publish(path, object(client, q))
	client.flowOf(q, client.ask(objectRequest("request_uri", uri, q, q)))
}

func moduleRequestURIUnsigned(p *relyingParty) {
	if !p.skipsUnsigned() {
		p.byReference(nil, func(_ *relyingParty, q url.Values) string { return unsignedObject(q) })
	}
}

func moduleRequestURISigned(p *relyingParty) {
	if !p.discovers("request_object_signing_alg_values_supported", "RS256") {
		p.t.Error("discovery does not offer it")
	}
	p.byReference(map[string]any{"request_object_signing_alg": "RS256"}, func(p *relyingParty, q url.Values) string {
		claims := objectClaims(q)
		claims["iss"], claims["aud"] = p.client.id, issuer
		return josetest.SignClaims(p.t, jose.SigningKey{Algorithm: jose.RS256, Key: *p.client.key}, josetest.Header{}, claims)
	})
}
