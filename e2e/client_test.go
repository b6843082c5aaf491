package e2e

import (
	"context"
	"testing"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"
)

// context returns a context with the gateway's HTTP client for x/oauth2 and go-oidc.
func (g *gateway) context(t *testing.T) context.Context {
	t.Helper()
	return oidc.ClientContext(t.Context(), g.client)
}

// provider returns the gateway as a provider discovered by go-oidc.
func (g *gateway) provider(t *testing.T) *oidc.Provider {
	t.Helper()
	provider, err := oidc.NewProvider(g.context(t), g.issuer)
	if err != nil {
		t.Fatal(err)
	}
	return provider
}

// demoApp returns the example's public client with its https redirect URI. With the redirect URI on localhost ([callback]),
// users who are already signed in would have to confirm first.
func (g *gateway) demoApp(t *testing.T, scopes ...string) *oauth2.Config {
	t.Helper()
	endpoint := g.provider(t).Endpoint()
	endpoint.AuthStyle = oauth2.AuthStyleInParams
	return &oauth2.Config{ClientID: "demo-app", RedirectURL: appCallback, Endpoint: endpoint, Scopes: scopes}
}

// userToken signs a user in and returns the tokens issued to the app.
func (g *gateway) userToken(t *testing.T, scopes ...string) *oauth2.Token {
	t.Helper()
	app, verifier := g.demoApp(t, scopes...), oauth2.GenerateVerifier()
	end := g.newPerson(t).signIn(t, app.AuthCodeURL("state", oauth2.S256ChallengeOption(verifier)))
	token, err := app.Exchange(g.context(t), end.Query().Get("code"), oauth2.VerifierOption(verifier))
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// serviceToken returns an access token that a client gets without a user.
func (g *gateway) serviceToken(t *testing.T) string {
	t.Helper()
	service := clientcredentials.Config{
		ClientID: "demo-service", ClientSecret: "demo-service-secret",
		TokenURL: g.issuer + "/oauth2/token", Scopes: []string{"system/*.rs"}, AuthStyle: oauth2.AuthStyleInHeader,
	}
	token, err := service.Token(g.context(t))
	if err != nil {
		t.Fatal(err)
	}
	return token.AccessToken
}
