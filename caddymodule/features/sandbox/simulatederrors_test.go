package sandbox

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
)

// What goes wrong is what was chosen, before anybody has signed in to the app.
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
	authorizetest.WantStatus(t, b.Post(launchPagePath, launchChoice(t, openLaunchPage(b, "alice", "right"), url.Values{"simulated": {"fire"}})), http.StatusBadRequest, "what is not offered")
}

// Access tokens that end soon are refreshed by such that end as soon; and no client launches so.
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
