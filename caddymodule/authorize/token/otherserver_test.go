package token_test

import (
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/servertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// Servers with the same keys and store accept each other's access tokens only for the same issuer and API.
func TestTokenOfAnotherServer(t *testing.T) {
	t.Parallel()
	kept := store.NewMemory(0, 0)
	server := func(change func(*authorize.Config)) http.Handler {
		return servertest.New(t, func(c *authorize.Config) { c.Store = kept; change(c) })
	}
	b := servertest.NewBrowser(t, server(func(*authorize.Config) {}))
	tokens := b.Tokens(nil)
	for name, tt := range map[string]struct {
		change func(*authorize.Config)
		works  bool
	}{
		"the same":       {func(*authorize.Config) {}, true},
		"another API":    {func(c *authorize.Config) { c.FHIRBasePath = "/fhir/R5" }, false},
		"another issuer": {func(c *authorize.Config) { c.Issuer = "https://other.example" }, false},
	} {
		other := servertest.NewBrowser(t, server(tt.change))
		if r := other.Userinfo(tokens.AccessToken); (r.StatusCode == http.StatusOK) != tt.works {
			t.Errorf("%s: %d", name, r.StatusCode)
		}
	}
}

// An id_token_hint is an ID token of this issuer: no other issuer's with the same keys, and no signed userinfo.
func TestHintOfAnotherKind(t *testing.T) {
	t.Parallel()
	config := func(c *authorize.Config) { c.Clients[0].UserinfoAlgorithm = "RS256" }
	s := servertest.New(t, config)
	b := servertest.NewBrowser(t, s)
	tokens := b.Tokens(nil)
	foreign := servertest.NewBrowser(t, servertest.New(t, func(c *authorize.Config) { config(c); c.Issuer = "https://other.example" }))
	page := foreign.SignIn(servertest.Request(url.Values{"aud": {"https://other.example/fhir/R4"}}), "alice", "right")
	code := servertest.Location(t, page).Query().Get("code")
	userinfo := servertest.Body(t, b.Userinfo(tokens.AccessToken))
	if strings.Count(userinfo, ".") != 2 || code == "" {
		t.Fatalf("userinfo %s, code %q", userinfo, code)
	}
	for name, tt := range map[string]struct {
		hint string
		ok   bool
	}{
		"an ID token":      {tokens.IDToken, true},
		"signed userinfo":  {userinfo, false},
		"another issuer's": {foreign.RequestTokens(servertest.CodeForm(code, nil)).IDToken, false},
		"an access token":  {tokens.AccessToken, false},
	} {
		back := servertest.Location(t, b.Authorize(servertest.Request(url.Values{"prompt": {"none"}, "id_token_hint": {tt.hint}})))
		if (back.Query().Get("code") != "") != tt.ok {
			t.Errorf("%s: %v", name, back)
		}
	}
}

// A token that was verified before is invalid once its key is retired.
func TestVerifiedTokenOfRetiredKey(t *testing.T) {
	t.Parallel()
	keys := keyring.New(new(authorizetest.Storage), "keys.json", slog.New(slog.DiscardHandler))
	b := servertest.NewBrowser(t, servertest.New(t, func(c *authorize.Config) { c.Keys = keys }))
	tokens := b.Tokens(nil)
	if !b.TokenWorks(tokens.AccessToken) {
		t.Fatal("the token does not work")
	}
	for _, info := range keys.Info() {
		if err := keys.Retire(t.Context(), info.KeyID); err != nil {
			t.Fatal(err)
		}
	}
	if b.TokenWorks(tokens.AccessToken) {
		t.Error("the token still works")
	}
}
