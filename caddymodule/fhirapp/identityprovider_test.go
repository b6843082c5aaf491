package fhirapp

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
)

// A kind sets defaults. Configured options override them.
func TestProviderKinds(t *testing.T) {
	t.Parallel()
	none := map[string]string(nil)
	for name, tt := range map[string]struct {
		configured     IdentityProvider
		acrs           map[string]string
		claims         map[string]string
		acrClaim, name string
	}{
		"any":                         {IdentityProvider{}, none, none, "", ""},
		"OpenID Connect":              {IdentityProvider{Kind: "oidc"}, none, none, "", ""},
		"Keycloak":                    {IdentityProvider{Kind: "keycloak"}, map[string]string{"2": "mfa"}, none, "", ""},
		"Keycloak with other levels":  {IdentityProvider{Kind: "keycloak", IdentityProvider: people.IdentityProvider{ACRMap: map[string]string{"2": "sfa", "3": "mfa"}}}, map[string]string{"2": "sfa", "3": "mfa"}, none, "", ""},
		"Entra ID":                    {IdentityProvider{Kind: "entra"}, none, map[string]string{"email_verified": "xms_edov"}, "acrs", ""},
		"Entra ID with claims":        {IdentityProvider{Kind: "entra", IdentityProvider: people.IdentityProvider{Claims: map[string]string{"fhirUser": "f", "email_verified": "v"}}}, none, map[string]string{"fhirUser": "f", "email_verified": "v"}, "acrs", ""},
		"Entra ID with other address": {IdentityProvider{Kind: "entra", IdentityProvider: people.IdentityProvider{Claims: map[string]string{"email": "upn"}}}, none, map[string]string{"email": "upn"}, "acrs", ""},
		"Google":                      {IdentityProvider{Kind: "google"}, none, none, "", "Google"},
		"Google of a name":            {IdentityProvider{Kind: "google", IdentityProvider: people.IdentityProvider{Name: "G"}}, none, none, "", "G"},
		"Okta":                        {IdentityProvider{Kind: "okta"}, map[string]string{"urn:okta:loa:1fa:any": "sfa", "urn:okta:loa:2fa:any": "mfa"}, none, "", ""},
		"Auth0":                       {IdentityProvider{Kind: "auth0"}, map[string]string{"http://schemas.openid.net/pape/policies/2007/06/multi-factor": "mfa"}, none, "", ""},
		"AD FS":                       {IdentityProvider{Kind: "adfs", IdentityProvider: people.IdentityProvider{Claims: map[string]string{"email": "upn"}}}, none, map[string]string{"preferred_username": "upn", "groups": "group", "email": "upn"}, "", ""},
		"Apple":                       {IdentityProvider{Kind: "apple"}, none, none, "", "Apple"},
		"PingOne":                     {IdentityProvider{Kind: "ping"}, map[string]string{"Single_Factor": "sfa", "Multi_Factor": "mfa"}, none, "", ""},
	} {
		got := tt.configured.withDefaults()
		if !maps.Equal(got.ACRMap, tt.acrs) || !maps.Equal(got.Claims, tt.claims) || got.ACRClaim != tt.acrClaim || got.Name != tt.name {
			t.Errorf("%s: %v, %v, %q, %q", name, got.ACRMap, got.Claims, got.ACRClaim, got.Name)
		}
	}
	apple := (&IdentityProvider{Kind: "apple"}).withDefaults()
	if apple.Issuer != "https://appleid.apple.com" || apple.Revalidate.Interval >= 0 || !apple.TrustEmail || apple.ResponseMode != "form_post" || !slices.Equal(apple.Scopes, []string{"email"}) {
		t.Errorf("%+v", apple)
	}
	rechecked := (&IdentityProvider{Kind: "apple", Revalidate: &Revalidation{Interval: caddy.Duration(time.Hour)}, IdentityProvider: people.IdentityProvider{Scopes: []string{"profile"}}}).withDefaults()
	if rechecked.Revalidate.Interval != time.Hour || !slices.Equal(rechecked.Scopes, []string{"profile"}) {
		t.Errorf("%+v", rechecked)
	}
	if providerKinds["keycloak"].acrMap["3"] != "" {
		t.Error("the site's options changed the defaults")
	}
	for kind := range providerKinds {
		if err := checkKind(kind); err != nil {
			t.Error(err)
		}
	}
}
