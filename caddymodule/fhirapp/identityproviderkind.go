package fhirapp

import (
	"cmp"
	"maps"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
)

const kindGoogle = "google"

// providerKind is what is known of the providers of a kind. Options override it.
type providerKind struct {
	name, issuer  string            // of the only provider of this kind
	claims        map[string]string // ours, and theirs
	acrMap        map[string]string // their acr, and our class
	acrClaim      string            // in place of acr
	selectAccount bool              // knows that prompt, whatever discovery says
}

// providerKinds are all kinds. What a site names itself, such as groups of Auth0's or policies of
// PingFederate's, has no default.
var providerKinds = map[string]providerKind{
	"oidc": {},
	// The levels of Keycloak's guide. Without levels, Keycloak says 1 even of two factors, and so it stands for nothing.
	"keycloak": {acrMap: map[string]string{"2": "mfa"}},
	// acrs are the authentication contexts of conditional access, which sites number.
	"entra":    {claims: map[string]string{"email_verified": "xms_edov"}, acrClaim: "acrs", selectAccount: true},
	"okta":     {acrMap: map[string]string{"urn:okta:loa:1fa:any": "sfa", "urn:okta:loa:2fa:any": "mfa"}},
	kindGoogle: {name: "Google", issuer: "https://accounts.google.com", selectAccount: true},
	"auth0":    {acrMap: map[string]string{"http://schemas.openid.net/pape/policies/2007/06/multi-factor": "mfa"}},
	"ping":     {acrMap: map[string]string{"Single_Factor": "sfa", "Multi_Factor": "mfa"}}, // PingOne's own policies
}

var checkKind = option.OneOf("oidc", "keycloak", "entra", "okta", kindGoogle, "auth0", "ping")

// complete sets what the options left out.
func (k providerKind) complete(c *people.IdentityProvider) {
	c.Issuer, c.Name = cmp.Or(c.Issuer, k.issuer), cmp.Or(c.Name, k.name)
	c.ACRClaim, c.SelectAccount = k.acrClaim, k.selectAccount
	c.ACRMap = over(k.acrMap, c.ACRMap)
	if c.Claims["email"] == "" { // else the kind says nothing of that address
		c.Claims = over(k.claims, c.Claims)
	}
}

// over lays what a site says over what a kind says.
func over(known, said map[string]string) map[string]string {
	if known == nil {
		return said
	}
	known = maps.Clone(known)
	maps.Copy(known, said)
	return known
}
