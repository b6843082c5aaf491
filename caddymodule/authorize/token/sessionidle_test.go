package token_test

import (
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/servertest"
)

// TestSessionIdle checks who is signed out after a quarter of an hour without activity, and what counts as that.
func TestSessionIdle(t *testing.T) {
	t.Parallel()
	const idle = 15 * time.Minute
	visit := func(b *servertest.Browser, _ *servertest.TokenResponse) { b.SignedIn() }
	refresh := func(b *servertest.Browser, got *servertest.TokenResponse) { *got = b.Refresh(got.Refresh, nil) }
	introspect := func(b *servertest.Browser, got *servertest.TokenResponse) { b.TokenWorks(got.AccessToken) }
	for _, tt := range []struct {
		name, scope string
		idle        time.Duration
		act         func(*servertest.Browser, *servertest.TokenResponse) // each five minutes
		after       time.Duration
		signedIn    bool
		refreshes   bool
	}{
		{"idle, no limit", "online_access", 0, nil, 7 * time.Hour, true, true},
		{"idle for a short time", "online_access", idle, nil, 13 * time.Minute, true, true},
		{"idle for too long", "online_access", idle, nil, idle + time.Second, false, false},
		{"visits", "online_access", idle, visit, 7 * time.Hour, true, true},
		{"visits, after the session's lifetime", "online_access", idle, visit, authorize.DefaultSessionLifetime + time.Second, false, false},
		{"refreshes with online_access", "online_access", idle, refresh, 7 * time.Hour, true, true},
		{"refreshes with offline_access", "offline_access", idle, refresh, idle + time.Second, false, true},
		{"uses of the access token", "online_access", idle, introspect, idle + time.Second, false, false},
		{"idle, with offline_access", "offline_access", idle, nil, 7 * time.Hour, false, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := servertest.NewBrowser(t, servertest.New(t, func(c *authorize.Config) {
					servertest.Refreshing(c)
					c.SessionIdle = tt.idle
				}))
				got := b.Tokens(url.Values{"scope": {tt.scope}})
				for left := tt.after; left > 0; left -= 5 * time.Minute {
					if tt.act != nil {
						tt.act(b, &got)
					}
					time.Sleep(min(left, 5*time.Minute))
				}
				if refreshed := b.Refresh(got.Refresh, nil); refreshed.Refresh != "" != tt.refreshes {
					t.Errorf("refreshed: %+v", refreshed)
				}
				if b.SignedIn() != tt.signedIn {
					t.Errorf("signed in: %v", !tt.signedIn)
				}
			})
		})
	}
}

// TestSessionIdleOfBefore checks that a session from before there was a limit goes on while its person is active, for its
// lifetime and no longer.
func TestSessionIdleOfBefore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var config authorize.Config
		b := servertest.NewBrowser(t, servertest.New(t, func(c *authorize.Config) { config.Durable, config.Store = c.Durable, c.Store }))
		b.Tokens(nil)
		b.Server = servertest.New(t, func(c *authorize.Config) {
			c.Durable, c.Store, c.SessionIdle = config.Durable, config.Store, time.Hour
		})
		for range 2*8 - 1 {
			if !b.SignedIn() {
				t.Fatal("signed out")
			}
			time.Sleep(30 * time.Minute)
		}
		time.Sleep(30*time.Minute + time.Second)
		if b.SignedIn() {
			t.Error("signed in for longer than a session lasts")
		}
	})
}
