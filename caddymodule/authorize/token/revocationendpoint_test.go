package token_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/servertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

func TestRevocation(t *testing.T) {
	t.Parallel()
	server := servertest.New(t, servertest.ResourceServer)
	b := servertest.NewBrowser(t, server)
	token := b.Tokens(nil).AccessToken
	if r := servertest.AskAboutToken(b, "/oauth2/revoke", token, "service", "hush"); r.StatusCode != http.StatusBadRequest {
		t.Errorf("another client revokes: %d", r.StatusCode)
	}
	if r := b.Userinfo(token); r.StatusCode != http.StatusOK {
		t.Errorf("after another's try: %d", r.StatusCode)
	}
	for _, revoked := range []string{token, token, "unknown"} {
		if r := servertest.AskAboutToken(b, "/oauth2/revoke", revoked, "app", ""); r.StatusCode != http.StatusOK || strings.TrimSpace(servertest.Body(t, r)) != "{}" {
			t.Errorf("revoking: %d", r.StatusCode)
		}
	}
	if r := b.Userinfo(token); r.StatusCode != http.StatusUnauthorized {
		t.Errorf("userinfo of a revoked token: %d", r.StatusCode)
	}
	if got := servertest.Decode[map[string]any](t, servertest.AskAboutToken(b, "/oauth2/introspect", token, "fhir-server", "rs")); got["active"] != false || len(got) != 1 {
		t.Errorf("introspection of a revoked token: %v", got)
	}
}

// A revocation that cannot be stored is never reported as done.
func TestRevocationThatFails(t *testing.T) {
	t.Parallel()
	store := store.NewMemory(0, 0)
	b := servertest.NewBrowser(t, servertest.New(t, func(c *authorize.Config) { c.Store = store }))
	fragment, err := url.ParseQuery(b.Answer(servertest.Request(url.Values{"response_type": {"token"}})).Fragment)
	if err != nil {
		t.Fatal(err)
	}
	token := fragment.Get("access_token")
	store.SetMaxEntries(1)
	if r := servertest.AskAboutToken(b, "/oauth2/revoke", token, "app", ""); r.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("status %d", r.StatusCode)
	}
}

// A refresh token takes all with it that its grant gave.
func TestRevocationOfRefreshToken(t *testing.T) {
	t.Parallel()
	for name, token := range map[string]func(first, second servertest.TokenResponse) string{
		"the current one":       func(_, second servertest.TokenResponse) string { return second.Refresh },
		"one that was followed": func(first, _ servertest.TokenResponse) string { return first.Refresh },
	} {
		t.Run(name, func(t *testing.T) {
			b := servertest.NewBrowser(t, servertest.New(t, servertest.Refreshing))
			first := b.Tokens(servertest.OfflineAccess(nil))
			second := b.Refresh(first.Refresh, nil)
			if r := servertest.AskAboutToken(b, "/oauth2/revoke", token(first, second), "service", "hush"); r.StatusCode != http.StatusBadRequest {
				t.Errorf("another client revokes: %d", r.StatusCode)
			}
			if !b.TokenWorks(second.AccessToken) {
				t.Error("another client's try revoked it")
			}
			if r := servertest.AskAboutToken(b, "/oauth2/revoke", token(first, second), "app", ""); r.StatusCode != http.StatusOK {
				t.Errorf("revoking: %d", r.StatusCode)
			}
			servertest.CheckDead(b, second.Refresh, first.AccessToken, second.AccessToken)
		})
	}
}
