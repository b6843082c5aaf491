package session_test

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// Somebody who signs in again in the same browser after the password has changed gets another session: the session of the
// old password, and what was given in it, does not go on.
func TestSessionOfAnotherPassword(t *testing.T) {
	t.Parallel()
	kept := store.NewMemory(0, 0)
	server := func(change func(*authorize.Config)) http.Handler {
		return authorizetest.New(t, func(c *authorize.Config) { c.Store = kept; change(c) })
	}
	b := authorizetest.NewBrowser(t, server(func(*authorize.Config) {}))
	signIn := func(password string) any {
		b.SignIn(authorizetest.Request(url.Values{"prompt": {"login"}}), "alice", password)
		return b.Claims(authorizetest.TokensOfSession(b).IDToken)["sid"]
	}
	first := signIn("right")
	b.Server = server(func(c *authorize.Config) { c.Users[0].PasswordHash = c.Users[1].PasswordHash })
	if again := signIn("other"); first == nil || again == nil || again == first {
		t.Errorf("sid %v, then %v", first, again)
	}
}
