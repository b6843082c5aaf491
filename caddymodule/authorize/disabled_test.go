package authorize_test

import (
	"net/http"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/servertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// Disabling a user ends what the user has: the session, codes, tokens.
func TestDisabledUser(t *testing.T) {
	t.Parallel()
	store := store.NewMemory(0, 0)
	keep := func(c *authorize.Config) { c.Store = store }
	disable := func(c *authorize.Config) { c.Store = store; c.Users[0].Disabled = true }
	b := servertest.NewBrowser(t, servertest.New(t, keep))
	token := b.Tokens(nil).AccessToken
	code := servertest.Location(t, b.Authorize(servertest.Request(nil))).Query().Get("code")
	b.Server = servertest.New(t, disable)
	if u := servertest.Location(t, b.Authorize(servertest.Request(nil))); u.Path != "/oauth2/login" {
		t.Errorf("the session leads to %s", u)
	}
	if got := servertest.Decode[servertest.TokenResponse](t, b.Post("/oauth2/token", servertest.CodeForm(code, nil))); got.Error != "invalid_grant" {
		t.Errorf("the code gives %+v", got)
	}
	if r := b.Userinfo(token); r.StatusCode != http.StatusUnauthorized {
		t.Errorf("userinfo: %d", r.StatusCode)
	}
	if r := b.SignIn(servertest.Request(nil), "alice", "right"); r.StatusCode != http.StatusForbidden {
		t.Errorf("sign-in: %d", r.StatusCode)
	}
}
