package people_test

import (
	"net/http"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// A local user who signed in by a linked account is signed out once the provider, or the link, is removed.
func TestRemovedProviderUnlinksUser(t *testing.T) {
	t.Parallel()
	for name, removed := range map[string]func(*testing.T, *providertest.Provider, store.Store) *authorize.Server{
		"the provider": func(t *testing.T, _ *providertest.Provider, kept store.Store) *authorize.Server {
			return authorizetest.New(t, func(c *authorize.Config) { authorizetest.Refreshing(c); c.Store = kept })
		},
		"the link": func(t *testing.T, p *providertest.Provider, kept store.Store) *authorize.Server {
			return authorizetest.NewFederated(t, p, func(_ *people.IdentityProvider, c *authorize.Config) { authorizetest.Refreshing(c); c.Store = kept })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, kept := providertest.Start(t, func(s *providertest.Settings) {
				s.People = []providertest.Person{personAt("1", "email", "alice@example.org", "email_verified", true)}
			}), store.NewMemory(0, 0)
			b := authorizetest.NewBrowser(t, authorizetest.NewFederated(t, p, func(idp *people.IdentityProvider, c *authorize.Config) {
				authorizetest.Refreshing(c)
				idp.LinkEmail, c.Store = true, kept
			}))
			tokens := authorizetest.FederatedTokens(b, authorizetest.OfflineAccess(authorizetest.ByProvider("hospital")))
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
			authorizetest.CheckDead(b, tokens.Refresh, tokens.AccessToken)
		})
	}
}
