package token_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/servertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// While the durable store fails, nothing is given, and nothing is called done.
func TestDurableStoreFails(t *testing.T) {
	t.Parallel()
	broken := false
	durable := servertest.Failing(&broken)
	b := servertest.NewBrowser(t, servertest.New(t, func(c *authorize.Config) { servertest.Refreshing(c); c.Durable = durable }))
	tokens := b.Tokens(servertest.OfflineAccess(nil))
	broken = true
	for name, send := range map[string]func() *http.Response{
		"refresh":        func() *http.Response { return b.Post("/oauth2/token", servertest.RefreshForm(tokens.Refresh, nil)) },
		"revoke refresh": func() *http.Response { return servertest.AskAboutToken(b, "/oauth2/revoke", tokens.Refresh, "app", "") },
		"revoke access": func() *http.Response {
			return servertest.AskAboutToken(b, "/oauth2/revoke", tokens.AccessToken, "app", "")
		},
	} {
		r := send()
		if got := servertest.Decode[servertest.TokenResponse](t, r); r.StatusCode != http.StatusServiceUnavailable || got.Error != "server_error" || got.AccessToken != "" {
			t.Errorf("%s: %d %+v", name, r.StatusCode, got)
		}
	}
	broken = false
	if r := servertest.AskAboutToken(b, "/oauth2/revoke", tokens.Refresh, "app", ""); r.StatusCode != http.StatusOK {
		t.Errorf("afterwards: %d", r.StatusCode)
	}
	servertest.CheckDead(b, tokens.Refresh, tokens.AccessToken)
}

// What was revoked stays so over a restart, which empties the store in memory,
// and what was not goes on. Until revocations can be read, no token is good.
func TestRestart(t *testing.T) {
	t.Parallel()
	broken := false
	durable := servertest.Failing(&broken)
	restart := func() *authorize.Server {
		return servertest.New(t, func(c *authorize.Config) { servertest.Refreshing(c); c.Durable = durable })
	}
	b := servertest.NewBrowser(t, restart())
	signedIn := func() servertest.TokenResponse {
		return servertest.NewBrowser(t, b.Server).Tokens(servertest.OfflineAccess(nil))
	}
	kept, family, single := signedIn(), signedIn(), signedIn()
	servertest.AskAboutToken(b, "/oauth2/revoke", family.Refresh, "app", "")
	servertest.AskAboutToken(b, "/oauth2/revoke", single.AccessToken, "app", "")
	b.Server = restart()
	broken = true
	if r := b.Userinfo(kept.AccessToken); r.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("while revocations cannot be read: %d", r.StatusCode)
	}
	broken = false
	servertest.CheckDead(b, family.Refresh, family.AccessToken, single.AccessToken)
	if got := b.Refresh(kept.Refresh, nil); !b.TokenWorks(kept.AccessToken) || got.Refresh == "" {
		t.Errorf("what was not revoked: %+v", got)
	}
	if got := b.Refresh(single.Refresh, nil); got.Refresh == "" {
		t.Errorf("the refresh token beside a revoked access token: %+v", got)
	}
}

// A crash, or an outage of the store, may lose the answer that held the new token. Who comes
// with the old one when it is over is no thief for as long as the grace; what was rotated since,
// or so long before an outage that its answer was not lost, is held to its own time.
func TestGraceAfterOutage(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		began time.Duration // of the outage, from the rotation; 0: not known, as of a restart
		down  time.Duration // from the rotation to the end of the outage
		later time.Duration // from there to the next try
		grace time.Duration
		again bool // the same token is given
	}{
		{"restart", 0, time.Minute, 0, 0, true},
		{"restart, within the grace", 0, time.Hour, 9 * time.Second, 0, true},
		{"restart, after the grace", 0, time.Minute, 11 * time.Second, 0, false},
		{"restart, without a grace", 0, time.Minute, 0, -1, false},
		{"rotated after the restart", 0, -time.Second, 11 * time.Second, 0, false},
		{"rotated during the outage", -time.Second, time.Minute, 9 * time.Second, 0, true},
		{"rotated during the outage, after the grace", -time.Second, time.Minute, 11 * time.Second, 0, false},
		{"rotated shortly before the outage", 9 * time.Second, time.Minute, 9 * time.Second, 0, true},
		{"rotated shortly before the outage, without a grace", time.Second, time.Minute, 0, -1, false},
		{"rotated long before the outage", 11 * time.Second, 20 * time.Second, 0, 0, false},
		{"rotated after the outage", -time.Minute, -time.Second, 11 * time.Second, 0, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var outage store.Outage
				b := servertest.NewBrowser(t, servertest.New(t, func(c *authorize.Config) {
					servertest.Refreshing(c)
					c.RefreshTokenGrace = tt.grace
					c.Outages = func() []store.Outage { return []store.Outage{outage} }
				}))
				first := b.Tokens(servertest.OfflineAccess(nil)).Refresh
				lost := b.Refresh(first, nil).Refresh
				if outage.Over = time.Now().Add(tt.down); tt.began != 0 {
					outage.Began = time.Now().Add(tt.began)
				}
				time.Sleep(tt.down + tt.later)
				if again := b.Refresh(first, nil).Refresh; (again == lost) != tt.again {
					t.Errorf("given %q, and before %q", again, lost)
				}
			})
		})
	}
}
