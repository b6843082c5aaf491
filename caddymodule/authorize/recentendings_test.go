package authorize_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/servertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// However often somebody ends what they were given, the stores keep a bounded number of
// entries, and what was ended stays so; what is newer is good.
func TestEndingsOfOnePersonAreBounded(t *testing.T) {
	t.Parallel()
	grant := servertest.Request(servertest.OfflineAccess(nil))
	for _, tt := range []struct {
		name  string
		bound int
		end   func(b *servertest.Browser) servertest.TokenResponse // what has ended
	}{
		{"revoked access tokens", 200, func(b *servertest.Browser) servertest.TokenResponse {
			answer := b.Redeem(servertest.Location(b.T, b.Authorize(servertest.Request(nil))))
			b.Post("/oauth2/revoke", url.Values{"client_id": {"app"}, "token": {answer.AccessToken}})
			return answer
		}},
		{"revoked refresh tokens", 200, func(b *servertest.Browser) servertest.TokenResponse {
			answer := b.Redeem(servertest.Location(b.T, b.Authorize(grant)))
			b.Post("/oauth2/revoke", url.Values{"client_id": {"app"}, "token": {answer.Refresh}})
			return answer
		}},
		{"codes used twice", 200, func(b *servertest.Browser) servertest.TokenResponse {
			to := servertest.Location(b.T, b.Authorize(grant))
			answer := b.Redeem(to)
			b.Redeem(to)
			return answer
		}},
		{"sessions", 1000, func(b *servertest.Browser) servertest.TokenResponse {
			other := servertest.NewBrowser(b.T, b.Server)
			answer := b.Redeem(servertest.Location(b.T, other.SignIn(servertest.Request(nil), "alice", "right")))
			other.Post("/oauth2/logout", url.Values{"request": {servertest.Field(b.T, servertest.Body(b.T, other.Get("/oauth2/logout")), "request")}})
			return answer
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			store, durable := store.NewMemory(0, 0), store.NewMemory(0, 0)
			b := servertest.NewBrowser(t, servertest.New(t, func(c *authorize.Config) {
				refreshing(c)
				c.Store, c.Durable = store, durable
				c.Clients[0].IDTokenAlgorithm = "ES256" // quick to sign
			}))
			lasting := b.Redeem(servertest.Location(t, b.SignIn(grant, "alice", "right")))
			older := servertest.Location(t, b.Authorize(grant)) // with a code
			first := tt.end(b)
			var last servertest.TokenResponse
			for range tt.bound + 20 {
				last = tt.end(b)
			}
			const cutoffs = 2
			if inMemory, kept := endingsIn(t, store), endingsIn(t, durable); inMemory > tt.bound+cutoffs || kept > tt.bound+cutoffs {
				t.Errorf("%d endings in memory, %d durable", inMemory, kept)
			}
			if b.TokenWorks(first.AccessToken) || b.TokenWorks(last.AccessToken) {
				t.Error("what was ended works")
			}
			if b.Redeem(older).AccessToken != "" {
				t.Error("a code older than all endings that are kept is good")
			}
			newer := b.Redeem(servertest.Location(t, servertest.NewBrowser(t, b.Server).SignIn(grant, "alice", "right")))
			if !b.TokenWorks(newer.AccessToken) || !b.TokenWorks(b.Refresh(lasting.Refresh, nil).AccessToken) {
				t.Error("what is newer has ended, or an older refresh token")
			}
		})
	}
}

// endingsIn counts what says in a store that something has ended.
func endingsIn(t *testing.T, store store.Store) (n int) {
	t.Helper()
	keys, err := store.List(t.Context(), "")
	for _, key := range keys {
		value, _ := store.Get(t.Context(), key)
		if strings.HasPrefix(key, "revoked:") || strings.HasPrefix(key, "cutoff:") || string(value) == "revoked" {
			n++
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return n
}
