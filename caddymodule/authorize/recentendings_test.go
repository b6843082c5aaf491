package authorize_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// However often somebody ends what they were given, the stores keep a bounded number of
// entries, and what was ended stays so; what is newer is good.
func TestEndingsOfOnePersonAreBounded(t *testing.T) {
	grant := request(offline(nil))
	for _, tt := range []struct {
		name  string
		bound int
		end   func(b *browser) tokenAnswer // what has ended
	}{
		{"revoked access tokens", 200, func(b *browser) tokenAnswer {
			answer := b.redeem(location(b.t, b.authorize(request(nil))))
			b.post("/oauth2/revoke", url.Values{"client_id": {"app"}, "token": {answer.AccessToken}})
			return answer
		}},
		{"revoked refresh tokens", 200, func(b *browser) tokenAnswer {
			answer := b.redeem(location(b.t, b.authorize(grant)))
			b.post("/oauth2/revoke", url.Values{"client_id": {"app"}, "token": {answer.Refresh}})
			return answer
		}},
		{"codes used twice", 200, func(b *browser) tokenAnswer {
			to := location(b.t, b.authorize(grant))
			answer := b.redeem(to)
			b.redeem(to)
			return answer
		}},
		{"sessions", 1000, func(b *browser) tokenAnswer {
			other := newBrowser(b.t, b.server)
			answer := b.redeem(location(b.t, other.signIn(request(nil), "alice", "right")))
			other.post("/oauth2/logout", url.Values{"request": hiddenField.FindStringSubmatch(body(b.t, other.get("/oauth2/logout")))[1:]})
			return answer
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			store, durable := store.NewMemory(0, 0), store.NewMemory(0, 0)
			b := newBrowser(t, newServer(t, func(c *authorize.Config) {
				refreshing(c)
				c.Store, c.Durable = store, durable
				c.Clients[0].IDTokenAlgorithm = "ES256" // quick to sign
			}))
			lasting := b.redeem(location(t, b.signIn(grant, "alice", "right")))
			older := location(t, b.authorize(grant)) // with a code
			first := tt.end(b)
			var last tokenAnswer
			for range tt.bound + 20 {
				last = tt.end(b)
			}
			const cutoffs = 2
			if inMemory, kept := endingsIn(t, store), endingsIn(t, durable); inMemory > tt.bound+cutoffs || kept > tt.bound+cutoffs {
				t.Errorf("%d endings in memory, %d durable", inMemory, kept)
			}
			if b.works(first.AccessToken) || b.works(last.AccessToken) {
				t.Error("what was ended works")
			}
			if b.redeem(older).AccessToken != "" {
				t.Error("a code older than all endings that are kept is good")
			}
			newer := b.redeem(location(t, newBrowser(t, b.server).signIn(grant, "alice", "right")))
			if !b.works(newer.AccessToken) || !b.works(b.refresh(lasting.Refresh, nil).AccessToken) {
				t.Error("what is newer has ended, or an older refresh token")
			}
		})
	}
}

// redeem exchanges the code of an answer.
func (b *browser) redeem(answer *url.URL) tokenAnswer {
	b.t.Helper()
	return decode[tokenAnswer](b.t, b.post("/oauth2/token", codeForm(answer.Query().Get("code"), nil)))
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
