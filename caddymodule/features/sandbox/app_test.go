package sandbox

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
)

// localServer starts a sandbox with an issuer on localhost.
func localServer(t *testing.T) *authorizetest.Browser {
	t.Helper()
	return sandboxServer(t, new(authorizetest.FHIRServer), func(c *authorize.Config) { c.Issuer = "https://localhost:8443" })
}

// With an issuer on localhost, an unregistered app can be launched at any redirect URI on this computer.
func TestLocalApp(t *testing.T) {
	t.Parallel()
	b := localServer(t)
	page := b.Get(launchPagePath)
	if page.StatusCode != http.StatusSeeOther {
		t.Fatalf("%d", page.StatusCode)
	}
	opened := launchByPage(b, url.Values{"app": {"sandbox-local-app"}, "launch_uri": {"http://localhost:4711/start?x=1"}})
	if opened.Host != "localhost:4711" || opened.Path != "/start" || opened.Query().Get("x") != "1" || opened.Query().Get("launch") == "" {
		t.Fatalf("opened at %s", opened)
	}
	authorizetest.WantText(t, b.Get(launchPagePath).Header.Get("Content-Security-Policy"), " http://localhost:*")
	q := url.Values{
		"response_type": {"code"}, "client_id": {"sandbox-local-app"}, "redirect_uri": {"http://localhost:4711/back"}, "launch": {opened.Query().Get("launch")},
		"scope": {"launch patient/Patient.rs"}, "state": {"s"}, "code_challenge": {authorizetest.S256(authorizetest.Verifier)}, "code_challenge_method": {"S256"},
	}
	form, sealed := b.OpenForm(b.Authorize(q))
	authorizetest.WantText(t, form, "An app on this computer")
	answer := authorizetest.Location(t, b.Post("/oauth2/consent", url.Values{"request": {sealed}, "decision": {"allow"}}))
	tokens := authorizetest.Decode[authorizetest.LaunchResponse](t, b.Post("/oauth2/token", url.Values{
		"grant_type": {"authorization_code"}, "code": {answer.Query().Get("code")}, "redirect_uri": q["redirect_uri"], "client_id": {"sandbox-local-app"}, "code_verifier": {authorizetest.Verifier},
	}))
	if answer.Host != "localhost:4711" || tokens.Patient != "ada" {
		t.Errorf("%s: %+v", answer, tokens)
	}
	q.Del("code_challenge")
	q.Del("code_challenge_method")
	authorizetest.WantError(t, authorizetest.Location(t, b.Authorize(q)), "invalid_request", "without PKCE")
	for origin, want := range map[string]bool{"http://localhost:4711": true, "http://127.0.0.1:1": true, "https://evil.example": false, "http://localhost.evil.example": false} {
		if allowsOrigin(b, origin) != want {
			t.Errorf("origin %s: %t", origin, !want)
		}
	}
}

// The local app cannot be launched at addresses on other computers and cannot get codes there. With a remote issuer, there is
// no local app.
func TestLocalAppIsLocal(t *testing.T) {
	t.Parallel()
	b := localServer(t)
	page := openLaunchPage(b, "alice", "right")
	for _, uri := range []string{
		"", "https://app.example.org/launch", "http://localhost.evil.example/", "http://localhost@evil.example/", "//localhost/", "javascript:alert(1)",
		"http://192.168.1.1/", "http://0.0.0.0/", "com.example.app://localhost/", "http://localhost:3000/#x", "http://evil.localhost/", `http://localhost\@evil.example/`,
	} {
		r := b.Post(launchPagePath, launchChoice(t, page, url.Values{"app": {"sandbox-local-app"}, "launch_uri": {uri}}))
		if text := authorizetest.Body(t, r); r.StatusCode != http.StatusBadRequest || r.Header.Get("Location") != "" || !strings.Contains(text, "Enter a launch URI on this computer") {
			t.Errorf("launched at %q: %d", uri, r.StatusCode)
		}
		authorizetest.WantStatus(t, b.Authorize(authorizetest.Request(url.Values{"client_id": {"sandbox-local-app"}, "redirect_uri": {uri}})), http.StatusBadRequest, uri)
	}
	elsewhere := sandboxServer(t, new(authorizetest.FHIRServer), nil)
	page = openLaunchPage(elsewhere, "alice", "right")
	r := elsewhere.Post(launchPagePath, launchChoice(t, page, url.Values{"app": {"sandbox-local-app"}, "launch_uri": {"http://localhost:3000/launch"}}))
	if strings.Contains(page, "launch_uri") || r.StatusCode != http.StatusBadRequest || allowsOrigin(elsewhere, "http://localhost:4711") {
		t.Errorf("elsewhere: %d", r.StatusCode)
	}
}

// allowsOrigin reports whether scripts of an origin may read responses.
func allowsOrigin(b *authorizetest.Browser, origin string) bool {
	server, ok := b.Server.(interface{ AllowsOrigin(string) bool })
	return ok && server.AllowsOrigin(origin)
}

// The authorization request returns the chosen error before the user signs in to the app.
func TestSimulatedErrors(t *testing.T) {
	t.Parallel()
	for simulated, want := range map[string]string{"access_denied": "access_denied", "server_error": "server_error", "old_launch": "invalid_request"} {
		t.Run(simulated, func(t *testing.T) {
			t.Parallel()
			b := sandboxServer(t, new(authorizetest.FHIRServer), nil)
			handle := launchByPage(b, url.Values{"app": {"app"}, "simulated": {simulated}}).Query().Get("launch")
			answer := authorizetest.Location(t, b.Authorize(authorizetest.Request(url.Values{"scope": {"launch patient/*.rs"}, "launch": {handle}})))
			if got := answer.Query(); got.Get("error") != want || got.Get("state") == "" || got.Has("code") {
				t.Errorf("%s", answer)
			}
		})
	}
	b := sandboxServer(t, new(authorizetest.FHIRServer), nil)
	authorizetest.WantStatus(t, b.Post(launchPagePath, launchChoice(t, openLaunchPage(b, "alice", "right"), url.Values{"simulated": {"fire"}})), http.StatusBadRequest, "unsupported simulation")
}

// Refreshed access tokens are as short-lived as the first one. A client that registers a launch cannot request simulated
// short-lived tokens.
func TestShortTokens(t *testing.T) {
	t.Parallel()
	b := sandboxServer(t, new(authorizetest.FHIRServer), authorizetest.WithEHR)
	expiry := func(form url.Values) (seconds int, refresh string) {
		tokens := authorizetest.Decode[struct {
			ExpiresIn int    `json:"expires_in"`
			Refresh   string `json:"refresh_token"`
		}](t, b.Post("/oauth2/token", form))
		return tokens.ExpiresIn, tokens.Refresh
	}
	expiryOf := func(handle string) (int, string) {
		answer := authorizetest.Location(t, b.Authorize(authorizetest.Request(url.Values{"scope": {"launch patient/*.rs offline_access"}, "launch": {handle}})))
		return expiry(url.Values{"grant_type": {"authorization_code"}, "code": {answer.Query().Get("code")}, "redirect_uri": {authorizetest.Callback}, "client_id": {"app"}})
	}
	seconds, refresh := expiryOf(launchByPage(b, url.Values{"app": {"app"}, "simulated": {"short_token"}}).Query().Get("launch"))
	if again, _ := expiry(url.Values{"grant_type": {"refresh_token"}, "refresh_token": {refresh}, "client_id": {"app"}}); seconds != 10 || again != 10 {
		t.Errorf("%d seconds, then %d", seconds, again)
	}
	form := authorizetest.LaunchForm(url.Values{"simulated": {"short_token"}})
	registered := authorizetest.Decode[struct{ Launch string }](t, b.Post("/oauth2/launch", form))
	if seconds, _ := expiryOf(registered.Launch); seconds <= 10 {
		t.Errorf("by a client: %d seconds", seconds)
	}
}
