package conformance

import (
	"encoding/base64"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/josetest"
)

const postLogoutRedirectURI = "https://rp.example/bye"

// longState has the length of the suite's requested_state_length and contains characters that need escaping.
var longState = strings.Repeat("a/+ %", 26)[:128]

func logoutPlan() testPlan {
	return testPlan{
		name:     "oidcc-rp-initiated-logout-certification-test-plan",
		text:     "Each module signs in, signs out, and checks with `prompt=none` whether the person is still signed in.",
		variants: logoutVariants(),
		modules: []testModule{
			{id: "oidcc-rp-initiated-logout-discovery-endpoint-verification", checks: "`end_session_endpoint`", run: moduleLogoutDiscovery},
			{id: "oidcc-rp-initiated-logout", checks: "back to the app with the state, 128 characters long; signed out", run: moduleLogout},
			{id: "oidcc-rp-initiated-logout-bad-post-logout-redirect-uri", checks: "unregistered: an error page, no redirect", run: moduleLogoutRefused("post_logout_redirect_uri", func(testing.TB, string) string { return postLogoutRedirectURI + "/bad" })},
			{id: "oidcc-rp-initiated-logout-query-added-to-post-logout-redirect-uri", checks: "an added query: an error page, no redirect", run: moduleLogoutRefused("post_logout_redirect_uri", func(testing.TB, string) string { return postLogoutRedirectURI + "?foo=bar" })},
			{id: "oidcc-rp-initiated-logout-modified-id-token-hint", checks: "a hint with alg `none`: an error page, no redirect", run: moduleLogoutRefused("id_token_hint", withoutSignature)},
			{id: "oidcc-rp-initiated-logout-bad-id-token-hint", checks: "a hint signed by the client, or by another key under our kid: an error page, no redirect", run: moduleLogoutForgedHint},
			{id: "oidcc-rp-initiated-logout-no-id-token-hint", checks: "a redirect URI without a hint: an error page, no redirect", run: moduleLogoutRefused("id_token_hint", func(testing.TB, string) string { return "" })},
			{id: "oidcc-rp-initiated-logout-no-params", checks: "the person confirms and is signed out", run: moduleLogoutConfirmation()},
			{id: "oidcc-rp-initiated-logout-no-post-logout-redirect-uri", checks: "signed out; a page confirms it", run: moduleLogoutPage},
			{id: "oidcc-rp-initiated-logout-no-state", checks: "back to the app without a state; signed out", run: moduleLogoutNoState},
			{id: "oidcc-rp-initiated-logout-only-state", checks: "the person confirms and is signed out; the state is not used", run: moduleLogoutConfirmation("state")},
		},
	}
}

func backchannelPlan() testPlan {
	return testPlan{
		name:     "oidcc-backchannel-rp-initiated-logout-certification-test-plan",
		text:     "The client receives the logout token at its own address.",
		variants: logoutVariants(),
		modules: []testModule{
			{id: "oidcc-backchannel-logout-discovery-endpoint-verification", checks: "`backchannel_logout_supported`, `backchannel_logout_session_supported`, `end_session_endpoint`", run: moduleBackchannelDiscovery},
			{id: "oidcc-backchannel-rp-initiated-logout", checks: "a logout token with the session's sid, signed by our key, without a nonce; back to the app; signed out", run: moduleBackchannel},
		},
	}
}

// logoutVariants returns the variants of a configured and a registered client with logout URIs.
func logoutVariants() []variant {
	return []variant{{configuredClient, func(*relyingParty) {}}, {"registered client", func(p *relyingParty) {
		registering("client_secret_basic", map[string]any{
			"post_logout_redirect_uris": []string{postLogoutRedirectURI},
			"backchannel_logout_uri":    p.server.URL + "/logout", "backchannel_logout_session_required": true,
		})(p)
	}}}
}

func moduleLogoutDiscovery(p *relyingParty) {
	if endpoint := p.discovery()["end_session_endpoint"]; endpoint != issuer+"/oauth2/logout" {
		p.t.Errorf("end_session_endpoint %v", endpoint)
	}
}

// logoutRequest signs in alice and returns the parameters of a logout request.
func (p *relyingParty) logoutRequest() url.Values {
	p.t.Helper()
	f := p.flow(nil)
	return url.Values{
		"id_token_hint": {f.tokens.IDToken}, "post_logout_redirect_uri": {postLogoutRedirectURI}, "state": {longState},
	}
}

func (p *relyingParty) logOut(q url.Values) *http.Response {
	return p.Get("/oauth2/logout?"+q.Encode(), "")
}

func (p *relyingParty) checkSignedIn(want bool) {
	p.t.Helper()
	q := p.request(url.Values{"prompt": {"none"}})
	a := p.ask(q)
	if want {
		p.granted(q, a)
	} else {
		p.refused(q, a, p.mode(), "login_required", "interaction_required")
	}
}

// checkBackAt checks that the browser is redirected to the app and that the state is the only parameter.
func (p *relyingParty) checkBackAt(r *http.Response, state string) {
	p.t.Helper()
	back, query, _ := strings.Cut(r.Header.Get("Location"), "?")
	got, err := url.ParseQuery(query)
	want := url.Values{}
	if state != "" {
		want.Set("state", state)
	}
	if err != nil || back != postLogoutRedirectURI || !maps.EqualFunc(got, want, slices.Equal[[]string]) {
		p.t.Errorf("status %d, sent to %q", r.StatusCode, r.Header.Get("Location"))
	}
}

func moduleLogout(p *relyingParty) {
	q := p.logoutRequest()
	p.checkBackAt(p.logOut(q), q.Get("state"))
	p.checkSignedIn(false)
}

func moduleLogoutNoState(p *relyingParty) {
	q := p.logoutRequest()
	q.Del("state")
	p.checkBackAt(p.logOut(q), "")
	p.checkSignedIn(false)
}

func moduleLogoutPage(p *relyingParty) {
	q := p.logoutRequest()
	q.Del("post_logout_redirect_uri")
	p.checkPage(p.logOut(q), http.StatusOK, "You’re signed out")
	p.checkSignedIn(false)
}

func (p *relyingParty) checkPage(r *http.Response, status int, title string) (page string) {
	p.t.Helper()
	page = gatewaytest.ReadBody(p.t, r)
	if r.StatusCode != status || r.Header.Get("Location") != "" || !strings.Contains(page, title) {
		p.t.Errorf("status %d, sent to %q: %s", r.StatusCode, r.Header.Get("Location"), page)
	}
	return page
}

// moduleLogoutRefused changes one parameter. The response must be an error page, and the user must stay signed in.
func moduleLogoutRefused(name string, change func(t testing.TB, idToken string) string) func(*relyingParty) {
	return func(p *relyingParty) {
		q := p.logoutRequest()
		if q.Set(name, change(p.t, q.Get("id_token_hint"))); q.Get(name) == "" {
			q.Del(name)
		}
		p.checkPage(p.logOut(q), http.StatusBadRequest, "This link doesn’t work")
		p.checkSignedIn(true)
	}
}

// moduleLogoutConfirmation sends only the named parameters. The response must be a confirmation page.
func moduleLogoutConfirmation(names ...string) func(*relyingParty) {
	return func(p *relyingParty) {
		q := p.logoutRequest()
		maps.DeleteFunc(q, func(name string, _ []string) bool { return !slices.Contains(names, name) })
		form := authorizetest.ReadForm(p.checkPage(p.logOut(q), http.StatusOK, "Sign out?"))
		p.checkSignedIn(true)
		p.checkPage(p.Post(form.Action, form.Fields), http.StatusOK, "You’re signed out")
		p.checkSignedIn(false)
	}
}

// withoutSignature returns an ID token with the header {"alg":"none"}.
func withoutSignature(_ testing.TB, idToken string) string {
	header := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`))
	return header + "." + strings.Split(idToken, ".")[1] + "."
}

// signedByAnother returns an ID token with the same claims and kid, signed with a
// key that is not published.
func signedByAnother(t testing.TB, idToken string) string {
	t.Helper()
	token, err := jose.ParseSignedCompact(idToken, []jose.SignatureAlgorithm{jose.RS256})
	if err != nil {
		t.Fatal(err)
	}
	header := josetest.Header{"typ": "JWT", "kid": token.Signatures[0].Header.KeyID}
	return josetest.Sign(t, jose.SigningKey{Algorithm: jose.RS256, Key: josetest.NewRSA()}, header, token.UnsafePayloadWithoutVerification())
}

// signedByClient returns an ID token issued to the client but signed with the client's own key or secret, as the suite's
// GenerateFakeIdTokenClaims and SignFakeIdToken do.
func (p *relyingParty) signedByClient() string {
	key := jose.SigningKey{Algorithm: jose.HS256, Key: []byte(p.client.secret + strings.Repeat(" ", 32))}
	if p.registers {
		key = jose.SigningKey{Algorithm: jose.RS256, Key: *rsaKey(0, "")}
	}
	return josetest.SignClaims(p.t, key, josetest.Header{}, map[string]any{
		"iss": p.client.id, "sub": "SubjectID", "aud": issuer, "nonce": "flibble", "iat": time.Now().Unix(), "exp": time.Now().Add(5 * time.Minute).Unix(),
	})
}

func moduleLogoutForgedHint(p *relyingParty) {
	moduleLogoutRefused("id_token_hint", signedByAnother)(p)
	moduleLogoutRefused("id_token_hint", func(testing.TB, string) string { return p.signedByClient() })(p)
}

func moduleBackchannelDiscovery(p *relyingParty) {
	moduleLogoutDiscovery(p)
	document := p.discovery()
	if document["backchannel_logout_supported"] != true || document["backchannel_logout_session_supported"] != true {
		p.t.Errorf("%v", document)
	}
}

const backchannelEvent = "http://schemas.openid.net/event/backchannel-logout"

func moduleBackchannel(p *relyingParty) {
	q := p.logoutRequest()
	id, _ := p.verified(q.Get("id_token_hint"))
	p.checkBackAt(p.logOut(q), q.Get("state"))
	raw := p.logoutTokenOf(id["sid"])
	claims, header := p.verified(raw)
	events, _ := claims["events"].(map[string]any)
	event, _ := events[backchannelEvent].(map[string]any)
	switch {
	case header.Algorithm != "RS256", header.ExtraHeaders[jose.HeaderType] != "logout+jwt":
		p.t.Errorf("header %+v", header)
	case claims["iss"] != issuer, claims["aud"] != p.client.id, claims["sub"] != id["sub"], claims["nonce"] != nil:
		p.t.Errorf("claims %v", claims)
	case len(events) != 1 || event == nil || len(event) > 0, len(claims["jti"].(string)) < 22:
		p.t.Errorf("claims %v", claims)
	}
	now := float64(time.Now().Unix())
	if at, end := claims["iat"].(float64), claims["exp"].(float64); at < now-60 || at > now+5 || end <= now || end > at+120 {
		p.t.Errorf("claims %v", claims)
	}
	p.checkSignedIn(false)
	p.checkPage(p.logOut(url.Values{"id_token_hint": {raw}}), http.StatusBadRequest, "This link doesn’t work") // a logout token is not accepted as an ID token
}

// logoutTokenOf waits for the logout token of a session. Tokens of earlier modules
// may arrive first.
func (p *relyingParty) logoutTokenOf(sid any) string {
	p.t.Helper()
	for raw := range p.logouts {
		if claims, _ := p.verified(raw); claims["sid"] == sid {
			return raw
		}
	}
	return ""
}
