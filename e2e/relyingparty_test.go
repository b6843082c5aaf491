package e2e

import (
	"errors"
	"net/http"
	"net/url"
	"testing"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
)

// A third-party client, golang.org/x/oauth2 with coreos/go-oidc, needs only discovery to sign in and validate the tokens.
func TestRelyingParty(t *testing.T) {
	ctx, provider := example.context(t), example.provider(t)
	app, verifier := example.demoApp(t, "openid", "profile", "email", "phone", "fhirUser"), oauth2.GenerateVerifier()
	end := example.newPerson(t).signIn(t, app.AuthCodeURL("s t/å&te", oidc.Nonce("a-nonce"), oauth2.S256ChallengeOption(verifier)))

	t.Run("the answer has state and issuer, in the query", func(t *testing.T) {
		query := end.Query()
		if query.Get("state") != "s t/å&te" || query.Get("iss") != exampleIssuer || end.Fragment != "" {
			t.Errorf("got %s", end)
		}
	})
	token, err := app.Exchange(ctx, end.Query().Get("code"), oauth2.VerifierOption(verifier))
	if err != nil {
		t.Fatal(err)
	}
	t.Run("token", func(t *testing.T) {
		if token.TokenType != "bearer" && token.TokenType != "Bearer" {
			t.Errorf("token_type %q", token.TokenType)
		}
		if token.ExpiresIn != 3600 {
			t.Errorf("expires_in %d, want 3600", token.ExpiresIn)
		}
	})
	t.Run("ID token", func(t *testing.T) {
		checkIDToken(t, provider, token, "a-nonce")
	})
	t.Run("userinfo", func(t *testing.T) {
		info, err := provider.UserInfo(ctx, oauth2.StaticTokenSource(token))
		if err != nil {
			t.Fatal(err)
		}
		if info.Subject != userName || info.Email != "alice@example.org" || !info.EmailVerified {
			t.Errorf("got %+v", info)
		}
		var more struct {
			Name  string `json:"name"`
			Phone string `json:"phone_number"`
		}
		if err := info.Claims(&more); err != nil || more.Name != "Alice Adams" || more.Phone != "+15550100" {
			t.Errorf("got %+v, %v", more, err)
		}
	})
	t.Run("$expand", func(t *testing.T) {
		example.expand(t, token.AccessToken, "http://hl7.org/fhir/ValueSet/administrative-gender").is(t, http.StatusOK)
	})
	t.Run("the code works once, and what it gave is revoked", func(t *testing.T) {
		_, err := app.Exchange(ctx, end.Query().Get("code"), oauth2.VerifierOption(verifier))
		wantOAuthError(t, err, "invalid_grant")
		awaitPropagation()
		example.expand(t, token.AccessToken, "http://hl7.org/fhir/ValueSet/administrative-gender").is(t, http.StatusUnauthorized)
	})
}

func checkIDToken(t *testing.T, provider *oidc.Provider, token *oauth2.Token, nonce string) {
	t.Helper()
	raw, _ := token.Extra("id_token").(string)
	idToken, err := provider.Verifier(&oidc.Config{ClientID: "demo-app"}).Verify(example.context(t), raw)
	if err != nil {
		t.Fatal(err)
	}
	if idToken.Nonce != nonce || idToken.Subject != userName {
		t.Errorf("nonce %q, sub %q", idToken.Nonce, idToken.Subject)
	}
	if idToken.AccessTokenHash != "" {
		if err := idToken.VerifyAccessToken(token.AccessToken); err != nil {
			t.Errorf("at_hash: %v", err)
		}
	}
	var claims struct {
		FHIRUser string `json:"fhirUser"`
		AuthTime int64  `json:"auth_time"`
	}
	if err := idToken.Claims(&claims); err != nil {
		t.Fatal(err)
	}
	// SMART App Launch 2.2 requires an absolute URL in fhirUser.
	if claims.FHIRUser != exampleIssuer+"/fhir/R4/Practitioner/alice" {
		t.Errorf("fhirUser %q", claims.FHIRUser)
	}
}

// The token endpoint rejects invalid requests to redeem a code.
func TestRedemptionRefused(t *testing.T) {
	ctx, app := example.context(t), example.demoApp(t, "openid")
	confidential := *app
	confidential.ClientID, confidential.ClientSecret = "demo-confidential", "demo-secret"
	wrongSecret := confidential
	wrongSecret.ClientSecret = "wrong"
	otherRedirect := *app
	otherRedirect.RedirectURL = callback

	verifier := oauth2.GenerateVerifier()
	challenge, right := oauth2.S256ChallengeOption(verifier), oauth2.VerifierOption(verifier)
	tests := []struct {
		name    string
		client  *oauth2.Config
		options []oauth2.AuthCodeOption
		err     string
	}{
		{"wrong verifier", app, []oauth2.AuthCodeOption{oauth2.VerifierOption(oauth2.GenerateVerifier())}, "invalid_grant"},
		{"no verifier", app, nil, "invalid_grant"},
		{"another client's code", &confidential, []oauth2.AuthCodeOption{right}, "invalid_grant"},
		{"wrong secret", &wrongSecret, []oauth2.AuthCodeOption{right}, "invalid_client"},
		{"another redirect URI", &otherRedirect, []oauth2.AuthCodeOption{right}, "invalid_grant"},
	}
	person := example.newPerson(t)
	person.signIn(t, app.AuthCodeURL("first"))
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			end := person.get(t, app.AuthCodeURL("state", challenge)).location(t)
			_, err := test.client.Exchange(ctx, end.Query().Get("code"), test.options...)
			wantOAuthError(t, err, test.err)
		})
	}
	t.Run("a verifier where no challenge was", func(t *testing.T) {
		end := person.get(t, app.AuthCodeURL("state")).location(t)
		_, err := app.Exchange(ctx, end.Query().Get("code"), right)
		wantOAuthError(t, err, "invalid_grant")
	})
}

// A confidential client may send its secret in the Authorization header or in the body (RFC 6749 §2.3.1).
func TestConfidentialClient(t *testing.T) {
	person := example.newPerson(t)
	person.signIn(t, example.demoApp(t).AuthCodeURL("first"))
	for name, style := range map[string]oauth2.AuthStyle{"header": oauth2.AuthStyleInHeader, "body": oauth2.AuthStyleInParams} {
		t.Run(name, func(t *testing.T) {
			app := example.demoApp(t, "openid", "user/*.rs")
			app.ClientID, app.ClientSecret = "demo-confidential", "demo-secret"
			app.Endpoint.AuthStyle = style
			end := person.get(t, app.AuthCodeURL("state")).location(t)
			if _, err := app.Exchange(example.context(t), end.Query().Get("code")); err != nil {
				t.Error(err)
			}
		})
	}
}

func wantOAuthError(t *testing.T, err error, code string) {
	t.Helper()
	var refused *oauth2.RetrieveError
	if !errors.As(err, &refused) {
		t.Fatalf("error %v, want %s", err, code)
	}
	if refused.ErrorCode != code {
		t.Errorf("error %s, want %s", refused.ErrorCode, code)
	}
	status := http.StatusBadRequest
	if code == "invalid_client" {
		status = http.StatusUnauthorized
	}
	if refused.Response.StatusCode != status {
		t.Errorf("status %d, want %d", refused.Response.StatusCode, status)
	}
}

// fragmentOf returns the parameters in a URL's fragment.
func fragmentOf(t *testing.T, u *url.URL) url.Values {
	t.Helper()
	values, err := url.ParseQuery(u.EscapedFragment())
	if err != nil {
		t.Fatal(err)
	}
	return values
}
