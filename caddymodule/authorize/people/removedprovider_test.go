package people_test

import (
	"net/http"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/servertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// A local user who signed in by a linked account is signed out once the provider, or the link, is removed.
func TestRemovedProviderUnlinksUser(t *testing.T) {
	t.Parallel()
	for name, removed := range map[string]func(*testing.T, *authorizetest.Provider, store.Store) *authorize.Server{
		"the provider": func(t *testing.T, _ *authorizetest.Provider, kept store.Store) *authorize.Server {
			return servertest.New(t, func(c *authorize.Config) { servertest.Refreshing(c); c.Store = kept })
		},
		"the link": func(t *testing.T, p *authorizetest.Provider, kept store.Store) *authorize.Server {
			return servertest.NewFederated(t, p, func(_ *people.IdentityProvider, c *authorize.Config) { servertest.Refreshing(c); c.Store = kept })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, kept := authorizetest.Start(t, func(s *authorizetest.Settings) {
				s.People = []authorizetest.Person{personAt("1", "email", "alice@example.org", "email_verified", true)}
			}), store.NewMemory(0, 0)
			b := servertest.NewBrowser(t, servertest.NewFederated(t, p, func(idp *people.IdentityProvider, c *authorize.Config) {
				servertest.Refreshing(c)
				idp.LinkEmail, c.Store = true, kept
			}))
			tokens := servertest.FederatedTokens(b, servertest.OfflineAccess(servertest.ByProvider("hospital")))
			if sub := b.Claims(tokens.AccessToken)["sub"]; sub != "alice" || !b.SignedIn() {
				t.Fatalf("sub %v", sub)
			}
			b.Server = removed(t, p, kept)
			if b.SignedIn() {
				t.Error("the session goes on")
			}
			if r := b.Get("/oauth2/account"); r.StatusCode == http.StatusOK {
				t.Error("the account page still opens")
			}
			servertest.CheckDead(b, tokens.Refresh, tokens.AccessToken)
		})
	}
}
