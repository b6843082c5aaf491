package e2e

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// Signing out at the gateway also signs the user out at the provider. The provider asks for confirmation and then redirects to
// the app's URI.
func TestFederatedLogout(t *testing.T) {
	address := mustFreeAddress(t)
	provider := startOIDCProvider(t, "oidc-provider-logout", address)
	g := federatedGateway(t, "gateway-logout", address, []string{
		provider.idp("rs256", "keep_upstream_token"),
		provider.idp("es256"),
	})
	for _, test := range []struct{ name, idp string }{
		{"with the provider's ID token as hint", "node-rs256"},
		{"without", "node-es256"},
	} {
		t.Run(test.name, func(t *testing.T) {
			ada := g.newPerson(t)
			signedIn := ada.signInBy(t, test.idp, adaTypes)
			logout := g.issuer + "/oauth2/logout?" + url.Values{
				"id_token_hint":            {signedIn.token.Extra("id_token").(string)},
				"post_logout_redirect_uri": {signedOut}, "state": {"s t/å&te"},
			}.Encode()

			away := ada.get(t, logout).location(t)
			if !strings.HasPrefix(away.String(), provider.issuer+"/session/end?") {
				t.Fatalf("sent to %s, want the provider's end_session endpoint", away)
			}
			if wantHint := test.idp == "node-rs256"; away.Query().Has("id_token_hint") != wantHint {
				t.Errorf("a hint in %s: %v, want %v", away, !wantHint, wantHint)
			}
			end := ada.walk(t, away.String(), signedOut, adaTypes)
			if state := end.Query().Get("state"); state != "s t/å&te" || len(end.Query()) != 1 {
				t.Errorf("ended at %s", end)
			}
			ada.isSignedOut(t, test.idp, provider)
		})
	}
	t.Run("signed out at both after confirmation", func(t *testing.T) {
		ada := g.newPerson(t)
		ada.signInBy(t, "node-rs256", adaTypes)
		logout := g.issuer + "/oauth2/logout?" + url.Values{
			"client_id": {"demo-app"}, "post_logout_redirect_uri": {signedOut},
		}.Encode()
		page := ada.get(t, logout).is(t, http.StatusOK)
		checkPageHeaders(t, page)
		if !strings.Contains(string(page.body), "Demo App") {
			t.Errorf("the page does not name the client: %s", page.body)
		}
		// The user stays signed in until the sign-out is confirmed.
		if end := ada.get(t, g.demoApp(t, "openid").AuthCodeURL("still")).location(t); !end.Query().Has("code") {
			t.Errorf("sent to %s, want a code", end)
		}
		ada.walk(t, logout, signedOut, adaTypes)
		ada.isSignedOut(t, "node-rs256", provider)
	})
}

// isSignedOut fails the test unless both the gateway and the provider require the person to sign in.
func (p *person) isSignedOut(t *testing.T, idp string, provider oidcProvider) {
	t.Helper()
	app := p.gateway.demoApp(t, "openid")
	if end := p.get(t, app.AuthCodeURL("gateway")).location(t); end.Path != "/oauth2/login" {
		t.Errorf("the gateway sends to %s, want its sign-in page", end)
	}
	if page := p.walk(t, app.AuthCodeURL("provider", withIDP(idp)), provider.issuer+"/interaction/", nil); page == nil {
		t.Error("the provider does not ask")
	}
}
