package authorize_test

import (
	"net/http"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// Disabling a user ends what the user has: the session, codes, tokens.
func TestDisabledUser(t *testing.T) {
	store := store.NewMemory(0, 0)
	keep := func(c *authorize.Config) { c.Store = store }
	disable := func(c *authorize.Config) { c.Store = store; c.Users[0].Disabled = true }
	b := newBrowser(t, newServer(t, keep))
	token := b.tokens(nil).AccessToken
	code := location(t, b.authorize(request(nil))).Query().Get("code")
	b.server = newServer(t, disable)
	if u := location(t, b.authorize(request(nil))); u.Path != "/oauth2/login" {
		t.Errorf("the session leads to %s", u)
	}
	if got := decode[tokenAnswer](t, b.post("/oauth2/token", codeForm(code, nil))); got.Error != "invalid_grant" {
		t.Errorf("the code gives %+v", got)
	}
	if r := b.userinfo(token); r.StatusCode != http.StatusUnauthorized {
		t.Errorf("userinfo: %d", r.StatusCode)
	}
	if r := b.signIn(request(nil), "alice", "right"); r.StatusCode != http.StatusForbidden {
		t.Errorf("sign-in: %d", r.StatusCode)
	}
}
