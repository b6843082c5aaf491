package e2e

import (
	"net/url"
	"strings"
	"testing"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
)

// signedOut is where the demo app wants people to be after signing out. Nothing
// needs to listen there. Where something must, it is the callback.
const signedOut = "http://localhost:3000/signed-out"

// federatedGateway starts a gateway at an address that was chosen before, because
// the providers must know it, with idp blocks put into Caddyfile.example.
//
// The providers are at 127.0.0.1: cookies do not tell ports apart, and what is
// different hosts in life must be different hosts here.
func federatedGateway(t *testing.T, name, address string, idps []string, edit ...string) *gateway {
	t.Helper()
	const client = "\t\tclient demo-app {\n"
	return gatewayAt(t, name, address, fhirServer.address, append([]string{
		client, strings.Join(idps, "\n") + "\n" + client + "\t\t\tpost_logout_redirect_uri " + signedOut + " " + callback + "\n",
	}, edit...)...)
}

// idpBlock is an idp block of a Caddyfile.
func idpBlock(head, issuer, id, secret string, lines ...string) string {
	lines = append([]string{"issuer " + issuer, "client_id " + id, "client_secret \"" + secret + "\""}, lines...)
	return "\t\tidp " + head + " {\n\t\t\t" + strings.Join(lines, "\n\t\t\t") + "\n\t\t}"
}

// mustFreeAddress is freeAddress for tests.
func mustFreeAddress(t *testing.T) string {
	t.Helper()
	address, err := freeAddress()
	if err != nil {
		t.Fatal(err)
	}
	return address
}

// loopback is the same address by its number.
func loopback(address string) string { return strings.Replace(address, "localhost", "127.0.0.1", 1) }

// federated is what the demo app learns of a person whom a provider signed in.
type federated struct {
	end      *url.URL
	token    *oauth2.Token
	verified *oidc.IDToken
	idToken  claims
	userInfo claims
}

// claims are those of a person, in our ID token or our userinfo.
type claims struct {
	Subject           string `json:"sub"`
	Name              string `json:"name"`
	PreferredUsername string `json:"preferred_username"`
	Email             string `json:"email"`
	EmailVerified     bool   `json:"email_verified"`
	FHIRUser          string `json:"fhirUser"`
}

// by makes an authorization request name a provider.
func by(idp string) oauth2.AuthCodeOption { return oauth2.SetAuthURLParam("identity_provider", idp) }

// signInBy signs the person in to the demo app by a provider, in whose forms they
// type something.
func (p *person) signInBy(t *testing.T, idp string, typed url.Values) federated {
	t.Helper()
	return p.gateway.federated(t, idp, func(start string) *url.URL { return p.walk(t, start, appCallback, typed) })
}

// federated signs somebody in to the demo app by a provider, and learns all that
// the app can learn of them. The way leads from the authorization request to the
// redirect URI.
func (g *gateway) federated(t *testing.T, idp string, way func(start string) *url.URL) federated {
	t.Helper()
	app, verifier := g.demoApp(t, "openid", "profile", "email", "fhirUser", "user/*.rs"), oauth2.GenerateVerifier()
	address := app.AuthCodeURL("s t/å&te", oidc.Nonce("a-nonce"), oauth2.S256ChallengeOption(verifier), by(idp))
	f := federated{end: way(address)}
	var err error
	othersHear() // what the provider says of the person now
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
