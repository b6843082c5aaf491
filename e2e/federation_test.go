package e2e

import (
	"net/url"
	"strings"
	"testing"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
)

// signedOut is the demo app's post-logout redirect URI. Only tests that need a response start a server there; other tests use
// the callback.
const signedOut = "http://localhost:3000/signed-out"

// federatedGateway starts a gateway with Caddyfile.example and additional idp blocks. The address is a parameter because the
// providers must know it in advance.
//
// The providers are at 127.0.0.1, because cookies do not distinguish ports: hosts that differ in production must differ here.
func federatedGateway(t *testing.T, name, address string, idps []string, edit ...string) *gateway {
	t.Helper()
	const client = "\t\tclient demo-app {\n"
	return startTestGatewayAt(t, name, address, fhirServer.address, append([]string{
		client, strings.Join(idps, "\n") + "\n" + client + "\t\t\tpost_logout_redirect_uri " + signedOut + " " + callback + "\n",
	}, edit...)...)
}

// idpBlock returns an idp block for the Caddyfile.
func idpBlock(head, issuer, id, secret string, lines ...string) string {
	lines = append([]string{"issuer " + issuer, "client_id " + id, "client_secret \"" + secret + "\""}, lines...)
	return "\t\tidp " + head + " {\n\t\t\t" + strings.Join(lines, "\n\t\t\t") + "\n\t\t}"
}

// mustFreeAddress is like freeAddress, but fails the test on errors.
func mustFreeAddress(t *testing.T) string {
	t.Helper()
	address, err := freeAddress()
	if err != nil {
		t.Fatal(err)
	}
	return address
}

// withLoopbackIP replaces localhost with 127.0.0.1 in an address.
func withLoopbackIP(address string) string {
	return strings.Replace(address, "localhost", "127.0.0.1", 1)
}

// federatedSignIn contains the results of signing in to the demo app at a provider.
type federatedSignIn struct {
	end      *url.URL
	token    *oauth2.Token
	verified *oidc.IDToken
	idToken  claims
	userInfo claims
}

// claims are the claims about a person in the gateway's ID token or userinfo.
type claims struct {
	Subject           string `json:"sub"`
	Name              string `json:"name"`
	PreferredUsername string `json:"preferred_username"`
	Email             string `json:"email"`
	EmailVerified     bool   `json:"email_verified"`
	FHIRUser          string `json:"fhirUser"`
}

// withIDP selects an identity provider in an authorization request.
func withIDP(idp string) oauth2.AuthCodeOption {
	return oauth2.SetAuthURLParam("identity_provider", idp)
}

// signInBy signs the person in to the demo app at a provider. typed contains the values for the provider's forms.
func (p *person) signInBy(t *testing.T, idp string, typed url.Values) federatedSignIn {
	t.Helper()
	return p.gateway.federated(t, idp, func(start string) *url.URL { return p.walk(t, start, appCallback, typed) })
}

// federated signs a person in to the demo app at a provider, and returns all data that the app can request. way follows the
// authorization request to the redirect URI.
func (g *gateway) federated(t *testing.T, idp string, way func(start string) *url.URL) federatedSignIn {
	t.Helper()
	app, verifier := g.demoApp(t, "openid", "profile", "email", "fhirUser", "user/*.rs"), oauth2.GenerateVerifier()
	address := app.AuthCodeURL("s t/å&te", oidc.Nonce("a-nonce"), oauth2.S256ChallengeOption(verifier), withIDP(idp))
	f := federatedSignIn{end: way(address)}
	var err error
	awaitPropagation() // each gateway needs the provider's current claims
	if f.token, err = app.Exchange(g.context(t), f.end.Query().Get("code"), oauth2.VerifierOption(verifier)); err != nil {
		t.Fatalf("%v, at %s", err, f.end)
	}
	raw, _ := f.token.Extra("id_token").(string)
	provider := g.provider(t)
	if f.verified, err = provider.Verifier(&oidc.Config{ClientID: "demo-app"}).Verify(g.context(t), raw); err != nil {
		t.Fatal(err)
	}
	if err := f.verified.Claims(&f.idToken); err != nil {
		t.Fatal(err)
	}
	info, err := provider.UserInfo(g.context(t), oauth2.StaticTokenSource(f.token))
	if err != nil {
		t.Fatal(err)
	}
	if err := info.Claims(&f.userInfo); err != nil {
		t.Fatal(err)
	}
	return f
}
