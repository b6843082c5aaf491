package fhirapp

import (
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
)

// TestSignInPolicy is over what a site asks of how people signed in: alice has a password alone.
func TestSignInPolicy(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, option, challenge string }{
		{"nothing", "", ""},
		{"a second factor", "acr mfa", `acr_values="mfa"`},
		{"a second factor, without scopes", "acr mfa\n\t\t\tscopes off", `acr_values="mfa"`},
		{"a class of another issuer", "acr gold\n\t\t\ttrust https://as.example https://localhost:8443/fhir/R4", `acr_values="gold"`},
		{"a password", "acr sfa", ""},
		{"a recent one", "max_age 1h", ""},
		{"both", "acr phr\n\t\t\tmax_age 1h", `acr_values="phr", max_age="3600"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := exampleGateway(t, echo, guarding(tt.option)...)
			r := g.Get("/fhir/R4/Patient/1", g.Token())
			challenge := r.Header.Get("WWW-Authenticate")
			if tt.challenge == "" {
				if r.StatusCode != http.StatusOK {
					t.Errorf("status %d, %s", r.StatusCode, challenge)
				}
				return
			}
			if r.StatusCode != http.StatusUnauthorized || !strings.Contains(challenge, `error="insufficient_user_authentication"`) ||
				!strings.Contains(challenge, tt.challenge) || !strings.Contains(challenge, "resource_metadata=") {
				t.Errorf("status %d, %s", r.StatusCode, challenge)
			}
			if r := g.Get("/fhir/R4/metadata", ""); r.StatusCode == http.StatusUnauthorized {
				t.Error("metadata needs a sign-in")
			}
		})
	}
}

// TestAccessTokenOfClassThatClientRequires: the guard tells the server by what class of sign-in a token was got.
func TestAccessTokenOfClassThatClientRequires(t *testing.T) {
	t.Parallel()
	g := exampleGateway(t, echo, "client demo-app {\n", "client demo-app {\n\t\t\tacr sfa\n")
	if r := g.Get("/fhir/R4/Patient/1", g.Token()); r.StatusCode != http.StatusOK {
		t.Errorf("status %d, %s", r.StatusCode, r.Header.Get("WWW-Authenticate"))
	}
}

// TestSignInPolicyOfNobody: a class that no token can have would refuse everybody, and only apps would hear of it.
func TestSignInPolicyOfNobody(t *testing.T) {
	t.Parallel()
	_, err := gatewaytest.Provision(t, gatewaytest.Adapt(t, gatewaytest.ExampleText(t, guarding("acr gold")...)))
	if err == nil || !strings.Contains(err.Error(), "no token would pass") {
		t.Errorf("got %v", err)
	}
}
