package authorize_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/totp"
)

// sentRedirectURI matches the only parameter that is logged as sent. Operators compare it with the registered redirect URIs.
var sentRedirectURI = regexp.MustCompile(` redirect_uri=("(\\.|[^"\\])*"|\S*)`)

// Request values never reach the log, in any field or encoding, because people type passwords into name fields. The exceptions
// are disallowed scopes and invalid redirect URIs, which the client's developer has to see.
func TestInputIsNotLogged(t *testing.T) {
	t.Parallel()
	const marked = "MARKED"
	names := strings.Fields(`response_type client_id redirect_uri state nonce prompt max_age login_hint id_token_hint
		ui_locales acr_values claims aud resource response_mode code_challenge code_challenge_method identity_provider request
		request_uri username password factor code decision grant_type code_verifier refresh_token client_secret client_assertion
		client_assertion_type token token_type_hint post_logout_redirect_uri logout_token error error_description iss`)
	bases := map[string]url.Values{
		"/oauth2/authorize": authorizetest.Request(nil), "/oauth2/token": authorizetest.CodeForm("code", nil), "/oauth2/par": authorizetest.Request(nil),
		"/oauth2/revoke": {"client_id": {"app"}, "token": {"t"}}, "/oauth2/introspect": {"client_id": {"service"}, "client_secret": {"hush"}, "token": {"t"}},
		"/oauth2/login": {}, "/oauth2/login/hospital": {}, "/oauth2/callback/hospital": {}, "/oauth2/consent": {}, "/oauth2/select_account": {},
		"/oauth2/logout": {}, "/oauth2/logout/hospital": {}, "/oauth2/userinfo": {}, "/oauth2/backchannel_logout/hospital": {},
	}
	var log bytes.Buffer
	p := providertest.Start(t)
	b := authorizetest.NewBrowser(t, authorizetest.NewFederatedServer(t, p, func(_ *people.IdentityProvider, c *authorize.Config) {
		c.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		c.Users[1].TOTPSecret = totp.NewSecret()
		c.Lockout.Off = true
	}))
	b.SignInAlice(authorizetest.Request(nil))
	check := func(what string) {
		t.Helper()
		if text := sentRedirectURI.ReplaceAllString(log.String(), ""); strings.Contains(text, marked) || strings.Contains(text, "%zq") {
			t.Errorf("%s: %s", what, text)
		}
		log.Reset()
	}
	for path, base := range bases {
		for _, name := range names {
			for _, value := range []string{marked, marked + "\n \"{", "%zq", `{"` + marked + `":1}`, "a." + marked + ".b", "https://" + marked + ".example/%zz"} {
				q := url.Values{}
				maps.Copy(q, base)
				q[name] = []string{value}
				for _, encoded := range []string{q.Encode(), q.Encode() + "&x=%zq" + marked} {
					b.Get(path + "?" + encoded)
					r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(encoded))
					r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
					b.Send(r)
				}
				check(path + " " + name + "=" + value)
			}
		}
	}
	for _, user := range []string{marked, "alice", "bob", marked + "@hospital.example"} {
		b.SignIn(authorizetest.Request(url.Values{"prompt": {"login"}}), user, marked)
		check("sign-in of " + user)
	}
	to := b.SignIn(authorizetest.Request(url.Values{"prompt": {"login"}}), "bob", "other").Header.Get("Location")
	_, factor, _ := strings.Cut(to, "factor=")
	b.Post("/oauth2/login", url.Values{"factor": {factor}, "code": {marked}})
	check("second factor")
	for _, header := range []string{"Basic " + marked, "Bearer " + marked, marked, "Basic TUFSS0VEOk1BUktFRA=="} {
		for path := range bases {
			r := authorizetest.PostRequest(path, url.Values{"token": {marked}, "grant_type": {marked}})
			r.Header.Set("Authorization", header)
			r.Header.Set("User-Agent", marked)
			r.Header.Set("Origin", "https://"+marked)
			b.Send(r)
			check(path + " " + header)
		}
	}
}

// Secrets are never logged at any level, whether requests succeed or fail.
func TestSecretsAreNotLogged(t *testing.T) {
	t.Parallel()
	const marked = "SECRET-by-which-the-log-is-searched"
	p := providertest.Start(t)
	var log bytes.Buffer
	b := authorizetest.NewBrowser(t, authorizetest.NewFederatedServer(t, p, func(idp *people.IdentityProvider, c *authorize.Config) {
		c.Logger = slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		idp.KeepUpstreamToken = true
		c.Users[0].PasswordHash = marked + "password"
		c.Clients[4].Secret = marked + "client"
		c.Clients[0].PostLogoutRedirectURIs = []string{authorizetest.Callback}
	}))
	q := authorizetest.Request(url.Values{"state": {marked + "state"}, "nonce": {marked + "nonce"}, "prompt": {"login"}})
	secrets := []string{marked}
	var tokens authorizetest.TokenResponse
	for range 2 {
		answer := authorizetest.Location(t, b.SignIn(q, "alice", marked+"password"))
		code := answer.Query().Get("code")
		for range 2 { // the second round revokes the grants of the first
			got := b.RequestTokens(authorizetest.CodeForm(code, nil))
			secrets = append(secrets, code, got.AccessToken, got.IDToken, got.RefreshToken)
			tokens.IDToken = max(tokens.IDToken, got.IDToken)
		}
		fragment, _ := url.ParseQuery(authorizetest.Location(t, b.Authorize(authorizetest.Request(url.Values{"response_type": {"token"}, "state": {marked}}))).Fragment)
		secrets = append(secrets, fragment.Get("access_token"), fragment.Get("id_token"))
		b.Post("/oauth2/revoke", url.Values{"token": {fragment.Get("access_token")}, "client_id": {"app"}})
		b.Post("/oauth2/revoke", url.Values{"token": {marked}, "client_id": {"app"}, "client_secret": {marked}})
		b.Post("/oauth2/introspect", url.Values{"token": {marked}, "client_id": {"service"}, "client_secret": {marked + "client"}})
		b.Post("/oauth2/token", url.Values{"grant_type": {"client_credentials"}, "client_id": {"service"}, "client_secret": {marked + "client"}})
		b.Post("/oauth2/token", url.Values{"grant_type": {"client_credentials"}, "client_id": {"service"}, "client_secret": {marked}})
		b.Post("/oauth2/token", authorizetest.CodeForm(marked, url.Values{"code_verifier": {marked}}))
		b.SignIn(authorizetest.Request(url.Values{"state": {marked}, "prompt": {"login"}}), "bob", marked)
		b.Authorize(authorizetest.Request(url.Values{"state": {marked}, "scope": {"other"}}))
		b.Get("/oauth2/callback/hospital?code=" + marked + "&state=" + marked)
		b.Get("/oauth2/login?request=" + marked)
		b.Get("/oauth2/logout?id_token_hint=" + marked)
		r := httptest.NewRequest(http.MethodGet, "/oauth2/userinfo", nil)
		r.Header.Set("Authorization", "Bearer "+marked)
		b.Send(r)
		b.Get("/oauth2/logout?id_token_hint=" + tokens.IDToken + "&post_logout_redirect_uri=" + url.QueryEscape(authorizetest.Callback) + "&state=" + marked)
		secrets = append(secrets, authorizetest.SignInAtProvider(b, url.Values{"state": {marked}}).Query().Get("code"))
		p.SetFault(providertest.Token, providertest.ErrorResponse(http.StatusBadRequest, "invalid_grant"))
		authorizetest.SignInAtProvider(b, url.Values{"state": {marked}, "prompt": {"login"}})
		p.SetFault(providertest.Token, func(w http.ResponseWriter, r *http.Request) { // a provider that echoes the request
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, r.FormValue("code"), " ", r.FormValue("code_verifier"), " ", r.Form.Encode())
		})
		authorizetest.SignInAtProvider(b, url.Values{"state": {marked}, "prompt": {"login"}})
		p.SetFault(providertest.Token, nil)
		for _, value := range b.Cookies {
			secrets = append(secrets, value)
		}
	}
	for _, r := range p.Requests(providertest.Token) {
		secrets = append(secrets, r.Form.Get("code"), r.Form.Get("code_verifier"))
	}
	secrets = slices.DeleteFunc(secrets, func(secret string) bool { return secret == "" })
	if len(secrets) < 20 || strings.Count(log.String(), "\n") < 20 {
		t.Fatalf("the test did not do what it is there for: %d secrets, log %s", len(secrets), &log)
	}
	for _, secret := range secrets {
		if strings.Contains(log.String(), secret) {
			t.Errorf("the log has the secret %q: %s", secret, &log)
		}
	}
}

// If there is no audit function, each outcome is logged exactly once.
func TestEventsAreLoggedOnce(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	b := authorizetest.NewBrowser(t, authorizetest.New(t, func(c *authorize.Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) }))
	for name, do := range map[string]func(){
		"token":         func() { b.Post("/oauth2/token", authorizetest.CodeForm("x", nil)) },
		"revocation":    func() { b.Post("/oauth2/revoke", url.Values{"client_id": {"app"}}) },
		"authorization": func() { b.Authorize(authorizetest.Request(url.Values{"scope": {"other"}})) },
		"page":          func() { b.Authorize(url.Values{}) },
		"userinfo":      func() { b.Get("/oauth2/userinfo") },
		"wrong method":  func() { b.Get("/oauth2/token") },
	} {
		log.Reset()
		if do(); strings.Count(log.String(), "\n") != 1 {
			t.Errorf("%s: %s", name, &log)
		}
	}
}
