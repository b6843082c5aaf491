package flow_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
)

// Public clients must use PKCE unless the configuration exempts them (RFC 9700 §2.1.1).
func TestPKCERequired(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, secret, pkce string
		needs              bool
	}{
		{"public", "", "", true},
		{"public, optional", "", client.PKCEOptional, false},
		{"public, required", "", client.PKCERequired, true},
		{"confidential", "s3cret", "", false},
		{"confidential, required", "s3cret", client.PKCERequired, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := authorizetest.NewBrowser(t, authorizetest.New(t, func(c *authorize.Config) {
				c.Clients[0].Secret, c.Clients[0].PKCE = tt.secret, tt.pkce
			}))
			if with := b.SignInAlice(authorizetest.Request(authorizetest.PKCE())).Query(); !with.Has("code") {
				t.Errorf("with PKCE: %v", with)
			}
			without := authorizetest.Location(t, b.Authorize(authorizetest.Request(nil))).Query()
			if got := without.Get("error") == "invalid_request"; got != tt.needs || without.Has("code") == tt.needs {
				t.Errorf("without PKCE: %v", without)
			}
			if token := authorizetest.Location(t, b.Authorize(authorizetest.Request(url.Values{"response_type": {"token"}}))); token.Fragment == "" {
				t.Errorf("the token flow, which has no code: %s", token)
			}
		})
	}
}

// nativeRedirectURIs are redirect URIs of a native app and requested variants.
var nativeRedirectURIs = []struct {
	registered, requested string
	ok                    bool
}{
	{"http://127.0.0.1/cb", "http://127.0.0.1/cb", true},
	{"http://127.0.0.1/cb", "http://127.0.0.1:51004/cb", true},
	{"http://127.0.0.1:8000/cb", "http://127.0.0.1:51004/cb", true},
	{"http://[::1]/cb", "http://[::1]:51004/cb", true},
	{"http://[::1]/cb?tenant=1", "http://[::1]:51004/cb?tenant=1", true},
	{"http://127.0.0.1", "http://127.0.0.1:51004", true},
	{"com.example.app:/cb", "com.example.app:/cb", true},
	{"com.example.app://login/cb", "com.example.app://login/cb", true},
	{"https://app.example.org/claimed", "https://app.example.org/claimed", true},
	{"http://localhost:3000/cb", "http://localhost:3000/cb", true},

	{"http://localhost:3000/cb", "http://localhost:3001/cb", false},
	{"https://app.example.org/claimed", "https://app.example.org:444/claimed", false},
	{"http://127.0.0.1/cb", "http://127.0.0.1/cb/", false},
	{"http://127.0.0.1/cb", "http://127.0.0.1:51004/other", false},
	{"http://127.0.0.1/cb", "http://127.0.0.1:/cb", false},
	{"http://127.0.0.1/cb", "http://127.0.0.1:123456/cb", false},
	{"http://127.0.0.1/cb", "http://127.0.0.1:80@evil.example/cb", false},
	{"http://127.0.0.1/cb", "http://127.0.0.1.evil.example/cb", false},
	{"http://127.0.0.1/cb", "http://127.0.0.2:51004/cb", false},
	{"http://127.0.0.1/cb", "http://[::1]:51004/cb", false},
	{"http://127.0.0.1/cb", "https://127.0.0.1:51004/cb", false},
	{"http://127.0.0.1", "http://127.0.0.1:51004\\@evil.example", false},
	{"com.example.app:/cb", "com.example.app:/cb2", false},
	{"com.example.app:/cb", "COM.example.app:/cb", false},
	{"com.example.app:/cb", "com.example.other:/cb", false},
}

// Native apps may use any loopback port or a private-use scheme (RFC 8252 §7). All other differences in the redirect URI are
// rejected. For other clients, any difference is rejected.
func TestNativeRedirectURIs(t *testing.T) {
	t.Parallel()
	for _, native := range []bool{true, false} {
		for _, tt := range nativeRedirectURIs {
			t.Run(tt.registered+" "+tt.requested, func(t *testing.T) {
				config := authorizetest.Config()
				config.Clients[0].Native, config.Clients[0].RedirectURIs = native, []string{tt.registered}
				server, err := authorize.New(config)
				if !native && err != nil {
					return // see TestRedirectURIsOfNativeAppsAlone
				}
				authorizetest.NoError(t, err)
				b := authorizetest.NewBrowser(t, server)
				answer := b.Authorize(authorizetest.Request(url.Values{"redirect_uri": {tt.requested}}))
				if answer.StatusCode == http.StatusFound != (tt.ok && (native || tt.requested == tt.registered)) {
					t.Fatalf("native %t: status %d", native, answer.StatusCode)
				}
				if answer.StatusCode != http.StatusFound {
					return
				}
				to := b.SignIn(authorizetest.Request(url.Values{"redirect_uri": {tt.requested}}), "alice", "right").Header.Get("Location")
				if !strings.HasPrefix(to, tt.requested) {
					t.Fatalf("sent to %q", to)
				}
				u, err := url.Parse(to)
				authorizetest.NoError(t, err)
				form := authorizetest.CodeForm(u.Query().Get("code"), url.Values{"redirect_uri": {tt.requested}})
				authorizetest.WantStatus(t, b.Post("/oauth2/token", form), http.StatusOK, "token endpoint")
			})
		}
	}
}

// A response that another app could intercept requires a click even if there is a session (RFC 8252 §8.6). Codes of
// confidential clients and responses to remote servers require no click.
func TestResponseNeedsClick(t *testing.T) {
	t.Parallel()
	always, never := []bool{true, true}, []bool{false, false}
	tests := []struct {
		name, uri, secret string
		click             []bool // whether a click is expected, for a code and for a token
	}{
		{"localhost", "http://localhost:3000/callback", "", always},
		{"loopback", "http://127.0.0.1:5000/cb", "", always},
		{"a private-use scheme", "com.example.app:/cb", "", always},
		{"https", authorizetest.Callback, "", never},
		{"https, by an address elsewhere", "https://198.51.100.7/cb", "", never},
		{"localhost by https", "https://LocalHost.:3000/cb", "", always},
		{"a name below localhost", "https://app.localhost/cb", "", always},
		{"loopback by https", "https://127.1/cb", "", always},
		{"loopback in one number", "https://0x7F000001/cb", "", always},
		{"loopback, as IPv6 writes IPv4", "https://[::ffff:127.0.0.1]/cb", "", always},
		{"every address of the device", "https://0.0.0.0/cb", "", always},
		{"localhost, confidential", "http://localhost:3000/callback", "s3cret", []bool{false, true}},
	}
	for _, tt := range tests {
		for i, responseType := range []string{"code", "token"} {
			t.Run(tt.name+", "+responseType, func(t *testing.T) {
				b := authorizetest.NewBrowser(t, authorizetest.New(t, func(c *authorize.Config) {
					c.Clients[0].Native, c.Clients[0].Secret = true, tt.secret
					c.Clients[0].RedirectURIs = []string{tt.uri}
				}))
				q := authorizetest.Request(url.Values{"redirect_uri": {tt.uri}, "response_type": {responseType}})
				isAppResponse := func(r *http.Response) bool {
					to := r.Header.Get("Location")
					return strings.HasPrefix(to, tt.uri) && (strings.Contains(to, "code=") || strings.Contains(to, "access_token="))
				}
				if r := b.SignIn(q, "alice", "right"); !isAppResponse(r) {
					t.Fatalf("after the sign-in, redirected to %s", r.Header.Get("Location"))
				}
				r := b.Authorize(q)
				if isAppResponse(r) == tt.click[i] {
					t.Fatalf("with a session, redirected to %s", r.Header.Get("Location"))
				}
				if !tt.click[i] {
					return
				}
				page, sealed := b.OpenForm(r)
				authorizetest.WantText(t, page, "The App")
				if r := b.Post("/oauth2/consent", url.Values{"request": {sealed}, "decision": {"allow"}, "may openid": {"yes"}}); !isAppResponse(r) {
					t.Errorf("after consent, redirected to %s", r.Header.Get("Location"))
				}
				q.Set("prompt", "none")
				if r := b.Authorize(q); !strings.Contains(r.Header.Get("Location"), "error=interaction_required") {
					t.Errorf("prompt=none was sent to %s", r.Header.Get("Location"))
				}
			})
		}
	}
}

// A silent sign-in at a provider does not replace the click.
func TestProviderResponseNeedsClick(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	b := authorizetest.NewBrowser(t, authorizetest.NewFederatedServer(t, p, nil))
	q := authorizetest.SelectProvider("hospital")
	q.Set("redirect_uri", "http://localhost:3000/callback")
	r := b.Follow(b.Authorize(authorizetest.Request(q)))
	if page := authorizetest.Body(t, r); r.StatusCode != http.StatusOK || !strings.Contains(page, `action="/oauth2/consent"`) {
		t.Errorf("status %d, %s", r.StatusCode, page)
	}
}

// form_post cannot reach a private-use scheme, so the error uses the default mode.
func TestNoFormPostToPrivateUse(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, func(c *authorize.Config) {
		c.Clients[0].Native, c.Clients[0].RedirectURIs = true, []string{"com.example.app:/cb"}
	}))
	r := b.Authorize(authorizetest.Request(url.Values{"redirect_uri": {"com.example.app:/cb"}, "response_mode": {"form_post"}}))
	if to := r.Header.Get("Location"); !strings.HasPrefix(to, "com.example.app:/cb?error=invalid_request") {
		t.Errorf("status %d, to %q", r.StatusCode, to)
	}
}

// Chromium applies the page's form-action policy to redirects after a form submission.
func TestFormActionOfNativeApps(t *testing.T) {
	t.Parallel()
	for uri, want := range map[string]string{
		"com.example.app:/cb": "form-action 'self' https: com.example.app:", "http://127.0.0.1:51004/cb": "form-action 'self' https: http://127.0.0.1:51004", "http://[::1]:51004/cb": "form-action 'self' https: http:",
	} {
		b := authorizetest.NewBrowser(t, authorizetest.New(t, func(c *authorize.Config) {
			c.Clients[0].Native, c.Clients[0].RedirectURIs = true, []string{"com.example.app:/cb", "http://127.0.0.1/cb", "http://[::1]/cb"}
		}))
		page := b.Get(authorizetest.Location(t, b.Authorize(authorizetest.Request(url.Values{"redirect_uri": {uri}}))).String())
		if policy := page.Header.Get("Content-Security-Policy"); !strings.HasSuffix(policy, want) {
			t.Errorf("%s: %s", uri, policy)
		}
	}
}
