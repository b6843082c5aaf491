package storecopy_test

import (
	"net/url"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/token"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/features/backup/storecopy"
)

// Everything of a person is found after the store was copied, and after it was merged with another that has more of that
// person, of the same app and of another.
func TestOnePersonIsFoundAfterCopy(t *testing.T) {
	t.Parallel()
	serve := func(s store.Store) *authorize.Server {
		return authorizetest.New(t, func(c *authorize.Config) {
			another := c.Clients[0]
			another.ID = "another"
			c.Clients = append(c.Clients, another)
			authorizetest.Refreshing(c)
			c.Store, c.Durable = s, s
		})
	}
	for name, apps := range map[string][]string{"into an empty store": nil, "merged": {"app", "app"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			from, to := store.NewMemory(0, 0), store.NewMemory(0, 0)
			after := serve(to)
			appOf := map[string]string{} // by refresh token
			signIn := func(at *authorize.Server, app string) *authorizetest.Browser {
				b, is := authorizetest.NewBrowser(t, at), url.Values{"client_id": {app}}
				code := authorizetest.Location(t, b.SignIn(authorizetest.Request(authorizetest.OfflineAccess(is)), "alice", "right")).Query().Get("code")
				appOf[b.RequestTokens(authorizetest.CodeForm(code, is)).Refresh] = app
				b.Server = after
				return b
			}
			browsers := []*authorizetest.Browser{signIn(serve(from), "app"), signIn(serve(from), "another")}
			for _, app := range apps {
				browsers = append(browsers, signIn(after, app))
			}
			_, err := storecopy.Run(t.Context(), from, to, storecopy.Options{Source: "a", Merge: apps != nil})
			authorizetest.NoError(t, err)
			ended, err := after.RevokeGrants(t.Context(), "alice", "")
			if want := (token.RevokedGrants{Sessions: len(browsers), RefreshTokens: len(browsers)}); ended != want || err != nil {
				t.Errorf("ended %+v, want %+v, %v", ended, want, err)
			}
			for token, app := range appOf {
				if browsers[0].Refresh(token, url.Values{"client_id": {app}}).AccessToken != "" {
					t.Errorf("a refresh token of %s works", app)
				}
			}
			for _, b := range browsers {
				if b.SignedIn() {
					t.Error("still signed in")
				}
			}
		})
	}
}
