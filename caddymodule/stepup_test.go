package caddymodule

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/requester"
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
			r := g.Get("/fhir/R4/Patient/1", g.token())
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
	if r := g.Get("/fhir/R4/Patient/1", g.token()); r.StatusCode != http.StatusOK {
		t.Errorf("status %d, %s", r.StatusCode, r.Header.Get("WWW-Authenticate"))
	}
}

// TestSignInPolicyOfNobody: a class that no token can have would refuse everybody, and only apps would hear of it.
func TestSignInPolicyOfNobody(t *testing.T) {
	t.Parallel()
	_, err := gatewaytest.Provision(t, gatewaytest.Adapt(t, exampleWith(t, guarding("acr gold")...)))
	if err == nil || !strings.Contains(err.Error(), "no token would pass") {
		t.Errorf("got %v", err)
	}
}

// TestSignInPolicyOfApps: a client that acts for itself has signed nobody in, and the picker has asked for all that it needs.
func TestSignInPolicyOfApps(t *testing.T) {
	t.Parallel()
	h := &Bearer{SignInPolicy: SignInPolicy{ACR: []string{"mfa"}, MaxAge: caddy.Duration(time.Hour)}, app: &App{}}
	h.issuer = "https://localhost:8443"
	now, long := time.Now(), time.Now().Add(-2*time.Hour)
	for _, tt := range []struct {
		name    string
		token   guard.Token
		refused bool
	}{
		{"a client", guard.Token{Issuer: h.issuer, Subject: "c", ClientID: "c"}, false},
		{"a client of another issuer", guard.Token{Issuer: "https://as.example", Subject: "c", ClientID: "c"}, true},
		{"a person", guard.Token{Issuer: h.issuer, Subject: "alice", ClientID: "c", ACR: "phr", AuthTime: now}, false},
		{"a person of long ago", guard.Token{Issuer: h.issuer, Subject: "alice", ClientID: "c", ACR: "phr", AuthTime: long}, true},
		{"a person of one factor", guard.Token{Issuer: h.issuer, Subject: "alice", ClientID: "c", ACR: "sfa", AuthTime: now}, true},
		{"a token of before the claim", guard.Token{Issuer: h.issuer, Subject: "alice", ClientID: "c", AuthTime: now}, true},
		{"a person of another issuer, in our words", guard.Token{Issuer: "https://as.example", Subject: "alice", ClientID: "c", ACR: "phr", AuthTime: now}, true},
		{"a person of another issuer", guard.Token{Issuer: "https://as.example", Subject: "alice", ClientID: "c", ACR: "mfa", AuthTime: now}, false},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		if err := h.checkSignIn(r, &tt.token, h.isOwn(&tt.token)); (err != nil) != tt.refused {
			t.Errorf("%s: %v", tt.name, err)
		}
		own := r.WithContext(requester.WithToken(r.Context(), tt.token))
		if err := h.checkSignIn(own, &tt.token, h.isOwn(&tt.token)); err != nil {
			t.Errorf("%s, asked by the picker: %v", tt.name, err)
		}
	}
}
