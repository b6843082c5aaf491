package e2e

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
)

// check checks properties that apply to sign-in at each provider: the gateway issues the code and the tokens, and the sub
// differs from the provider's identifiers of the person.
func (f federatedSignIn) check(t *testing.T, g *gateway, upstreamIssuer, upstreamSubject string, want claims) {
	t.Helper()
	t.Run("the code is ours", func(t *testing.T) {
		query := f.end.Query()
		if query.Get("iss") != g.issuer || query.Get("state") != "s t/å&te" || f.end.Fragment != "" {
			t.Errorf("got %s", f.end)
		}
	})
	t.Run("the ID token is ours", func(t *testing.T) {
		if f.verified.Issuer != g.issuer || f.verified.Nonce != "a-nonce" {
			t.Errorf("iss %q, nonce %q", f.verified.Issuer, f.verified.Nonce)
		}
		if err := f.verified.VerifyAccessToken(f.token.AccessToken); f.verified.AccessTokenHash != "" && err != nil {
			t.Error(err)
		}
	})
	t.Run("the access token is ours", func(t *testing.T) {
		token := payload(t, f.token.AccessToken)
		if token["iss"] != g.issuer || token["aud"] != g.issuer+"/fhir/R4" || token["sub"] != f.verified.Subject {
			t.Errorf("got %v", token)
		}
		g.expand(t, f.token.AccessToken, gender).is(t, http.StatusOK)
		status := http.StatusOK
		if want.FHIRUser == "" {
			status = http.StatusForbidden // a user/ scope requires a FHIR resource of the person
		}
		g.fhir(t, f.token.AccessToken, http.MethodGet, "Patient", "").is(t, status)
	})
	t.Run("the claims are the provider's", func(t *testing.T) {
		got := f.userInfo
		if got.Subject == "" || got.Subject == upstreamSubject || got.Subject != f.verified.Subject {
			t.Errorf("sub %q in userinfo, %q in the ID token, %q at the provider", got.Subject, f.verified.Subject, upstreamSubject)
		}
		if want.Subject = got.Subject; got != want {
			t.Errorf("userinfo\n%+v, want\n%+v", got, want)
		}
		if f.idToken.FHIRUser != want.FHIRUser {
			t.Errorf("fhirUser %q in the ID token, want %q", f.idToken.FHIRUser, want.FHIRUser)
		}
	})
	t.Run("no token of the provider is shown", func(t *testing.T) {
		visible, err := json.Marshal([]any{payload(t, f.token.AccessToken), payload(t, f.token.Extra("id_token").(string)), f.end.String()})
		if err != nil {
			t.Fatal(err)
		}
		if f.token.RefreshToken != "" || strings.Contains(string(visible), upstreamIssuer) {
			t.Errorf("%s is in %s, or refresh token %q", upstreamIssuer, visible, f.token.RefreshToken)
		}
	})
}

// payload decodes the payload of a JWT without verifying the signature.
func payload(t *testing.T, token string) map[string]any {
	t.Helper()
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		t.Fatalf("no JWT: %q", token)
	}
	raw, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		t.Fatal(err)
	}
	var claims map[string]any
	if err := json.Unmarshal(raw, &claims); err != nil {
		t.Fatal(err)
	}
	return claims
}
