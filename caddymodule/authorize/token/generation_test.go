package token_test

import (
	"net/url"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/servertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/tokenclaim"
)

// An access token is of the client that it was given to: not of a later client with the same client_id, nor of the client
// once it may no longer get such tokens.
func TestTokenIsOfClientGeneration(t *testing.T) {
	t.Parallel()
	server := func(change func(app, service *authorize.Client)) *authorize.Server {
		return servertest.New(t, func(c *authorize.Config) {
			app, service := &c.Clients[0], &c.Clients[4]
			app.Generation, service.Generation = 1, 1
			change(app, service)
		})
	}
	first := server(func(_, _ *authorize.Client) {})
	b := servertest.NewBrowser(t, first)
	r := servertest.PostRequest("/oauth2/token", url.Values{"grant_type": {"client_credentials"}, "scope": {"system/*.rs"}})
	r.SetBasicAuth("service", "hush")
	tokens := map[string]string{
		"service": servertest.Decode[servertest.TokenResponse](t, b.Send(r)).AccessToken,
		"app":     b.Tokens(nil).AccessToken,
	}
	for name, tt := range map[string]struct {
		change       func(app, service *authorize.Client)
		app, service bool
	}{
		"the same clients":   {func(_, _ *authorize.Client) {}, true, true},
		"another app":        {func(app, _ *authorize.Client) { app.Generation = 2 }, false, true},
		"an app without one": {func(app, _ *authorize.Client) { app.Generation = 0 }, false, true},
		"another service":    {func(_, service *authorize.Client) { service.Generation = 2 }, true, false},
		"a service no longer": {func(_, service *authorize.Client) {
			service.GrantTypes, service.Secret, service.RedirectURIs = nil, "", []string{servertest.Callback}
		}, true, false},
	} {
		s := server(tt.change)
		for client, want := range map[string]bool{"app": tt.app, "service": tt.service} {
			claims := b.Claims(tokens[client])
			text := func(name string) string { text, _ := claims[name].(string); return text }
			holder, err := s.Holder(t.Context(), tokenclaim.AccessToken{
				ID: text("jti"), Subject: text("sub"), ClientID: text("client_id"), Scope: text("scope"), Session: text("sid"),
				CredentialHash: text("credential_hash"), ACR: text("acr"),
			})
			if err != nil || (holder != nil) != want {
				t.Errorf("%s: the token of %s: %+v, %v", name, client, holder, err)
			}
		}
	}
}
