package authorize_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store/storetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/tokenclaim"
)

// accessToken is what the guard asks about a token.
func accessToken(b *authorizetest.Browser, raw string) tokenclaim.AccessToken {
	claims := b.Claims(raw)
	text := func(name string) string { value, _ := claims[name].(string); return value }
	return tokenclaim.AccessToken{
		ID: text("jti"), Subject: text("sub"), ClientID: text("client_id"), Scope: text("scope"), Session: text("sid"),
		CredentialHash: text("credential_hash"), Provider: text("idp"), ProviderAccount: text("idp_account"), ACR: text("acr"),
	}
}

// Whoever a token stands for, the guard asks the store nothing about it, once it has asked; and
// neither do introspection and userinfo.
func TestGuardTakesNoRoundTrip(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	r, gateway := authorizetest.Replicated(t)
	const strongSecret = "7d4be3ce86cd4f9ab0e1b2c3d4e5f607"
	server := authorizetest.New(t, func(c *authorize.Config) {
		authorizetest.Refreshing(c)
		c.Clients = append(c.Clients, client.Client{ID: "fhir-server", Secret: strongSecret, IntrospectAll: true})
		c.Store, c.Durable = r, r
		c.IdentityProviders = []people.IdentityProvider{authorizetest.Hospital(p)}
	})
	b := authorizetest.NewBrowser(t, server)
	service := b.Post("/oauth2/token", url.Values{"grant_type": {"client_credentials"}, "client_id": {"service"}, "client_secret": {"hush"}})
	tokens := map[string]string{
		"a local user":           b.Tokens(url.Values{"scope": {"openid user/*.rs"}}).AccessToken,
		"one of a session":       authorizetest.NewBrowser(t, server).Tokens(url.Values{"scope": {"openid online_access"}}).AccessToken,
		"a service":              authorizetest.Decode[authorizetest.TokenResponse](t, service).AccessToken,
		"a person of a provider": authorizetest.FederatedTokens(authorizetest.NewBrowser(t, server), nil).AccessToken,
	}
	for name, raw := range tokens {
		introspection := authorizetest.PostRequest("/oauth2/introspect", url.Values{"token": {raw}})
		introspection.SetBasicAuth("fhir-server", strongSecret)
		userinfo := httptest.NewRequest(http.MethodGet, "/oauth2/userinfo", nil)
		userinfo.Header.Set("Authorization", "Bearer "+raw)
		checkQuiet(t, gateway, "the guard, for "+name, guarding(t, server, accessToken(b, raw)))
		checkQuiet(t, gateway, "introspection of "+name, func() { b.Send(introspection.Clone(t.Context())) })
		checkQuiet(t, gateway, "userinfo of "+name, func() { b.Send(userinfo.Clone(t.Context())) })
	}
}

// guarding asks what the guard asks about a token, which must be valid.
func guarding(t *testing.T, server *authorize.Server, asked tokenclaim.AccessToken) func() {
	return func() {
		revoked, err1 := server.Revoked(t.Context(), asked.ID)
		holder, err2 := server.Holder(t.Context(), asked)
		if revoked || holder == nil || err1 != nil || err2 != nil {
			t.Errorf("revoked %t, holder %v: %v, %v", revoked, holder, err1, err2)
		}
	}
}

func checkQuiet(t *testing.T, g *storetest.Gateway, what string, do func()) {
	t.Helper()
	if before := g.RoundTrips(); !authorizetest.Quiet(g, do) {
		t.Errorf("%s takes round trips: %d so far", what, g.RoundTrips()-before)
	}
}
