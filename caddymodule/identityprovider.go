package caddymodule

import (
	"fmt"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
)

// IdentityProvider is an upstream OpenID Connect provider by which people may sign
// in. It is asked on first use: a provider that is down keeps nobody from loading
// the configuration, or from signing in elsewhere.
type IdentityProvider struct {
	// Names the provider in addresses, in a client's list, and in a request's
	// `identity_provider`: lower-case letters, digits and hyphens. Required.
	Key string `json:"key,omitempty"`

	// What people see as the provider's name, and what its errors begin with.
	// Default: the key; for Google, `Google`.
	Name string `json:"name,omitempty"`

	// `oidc` or `google`, which has an issuer by default and errors of its own.
	// Default: `oidc`.
	Kind string `json:"kind,omitempty"`

	// The provider's issuer: https, or http on loopback. Required but for
	// Google.
	Issuer string `json:"issuer,omitempty"`

	// Our client_id at the provider. Its redirect URI there is
	// `{issuer}/oauth2/callback/{key}`. Required. Placeholders are supported.
	ClientID string `json:"client_id,omitempty"`

	// Our client secret at the provider. Placeholders are supported. Default: none.
	ClientSecret string `json:"client_secret,omitempty"`

	// The scopes that the provider is asked for, beside `openid`. Default:
	// `profile email`.
	Scopes []string `json:"scopes,omitempty"`

	TLS

	// How long each request to the provider may take. Default: `10s`.
	Timeout caddy.Duration `json:"timeout,omitempty"`

	// The domains of e-mail addresses whose owners sign in here. Who types one of
	// theirs on the sign-in page is sent to the provider. Default: none.
	Domains []string `json:"domains,omitempty"`

	// Which of the provider's claims is taken for one of ours: those of OpenID
	// Connect Core §5.1, `fhirUser` and `groups`. Default: the one of the same
	// name; `fhirUser` is not taken unless it is mapped, and where `email` or
	// `phone_number` is, `email_verified` or `phone_number_verified` counts only
	// if it is mapped too.
	Claims map[string]string `json:"claims,omitempty"`

	// The FHIR resources, `Practitioner/alice`, of the provider's subjects.
	// Default: none.
	FHIRUsers map[string]string `json:"fhir_users,omitempty"`

	// Who may sign in: whoever one of the rules names. Default: everybody whom
	// the provider signs in. A change counts at once, also for who is signed in.
	Allow []AllowRule `json:"allow,omitempty"`

	// Sign people in as the local user with the same e-mail address, where it is
	// verified on both sides. Whoever can set addresses at the provider can then
	// sign in as these users. Default: an account of its own, by issuer and
	// subject.
	LinkEmail bool `json:"link_email,omitempty"`

	// Keep the provider's ID token with the session, so that signing out there
	// needs no confirmation. Default: it is not kept.
	KeepUpstreamToken bool `json:"keep_upstream_token,omitempty"`
}

// AllowRule is one way to be allowed in.
type AllowRule struct {
	// `email` or `group`. Required.
	Claim string `json:"claim,omitempty"`

	// A group; or an e-mail address, or `*@domain` for all addresses of a domain.
	// Addresses count only where the provider has verified them. Required.
	Value string `json:"value,omitempty"`
}

const (
	kindGoogle   = "google"
	googleIssuer = "https://accounts.google.com"
)

var checkKind = oneOf("oidc", kindGoogle)

// identityProviders are the providers as package authorize has them, with their
// secrets resolved.
func (a *App) identityProviders() ([]people.IdentityProvider, error) {
	repl := caddy.NewReplacer()
	providers := make([]people.IdentityProvider, len(a.IdentityProviders))
	for i, p := range a.IdentityProviders {
		if err := checkKind(p.Kind); p.Kind != "" && err != nil {
			return nil, fmt.Errorf("idp %q: kind: %w", p.Key, err)
		}
		id, err := resolveSecret(repl, p.ClientID)
		if err != nil {
			return nil, fmt.Errorf("idp %q: client_id: %w", p.Key, err)
		}
		secret, err := resolveSecret(repl, p.ClientSecret)
		if err != nil {
			return nil, fmt.Errorf("idp %q: client_secret: %w", p.Key, err)
		}
		providers[i] = p.withCredentials(id, secret)
		if providers[i].Transport, err = p.TLS.transport(); err != nil {
			return nil, fmt.Errorf("idp %q: %w", p.Key, err)
		}
	}
	return providers, nil
}

func (p *IdentityProvider) withCredentials(id, secret string) people.IdentityProvider {
	c := people.IdentityProvider{
		Key: p.Key, Name: p.Name, Google: p.Kind == kindGoogle, Issuer: p.Issuer, ClientID: id, ClientSecret: secret,
		Scopes: p.Scopes, Timeout: time.Duration(p.Timeout), Domains: p.Domains, Claims: p.Claims,
		FHIRUsers: p.FHIRUsers, LinkEmail: p.LinkEmail, KeepUpstreamToken: p.KeepUpstreamToken,
	}
	for _, rule := range p.Allow {
		c.Allow = append(c.Allow, people.AllowRule(rule))
	}
	if c.Google && c.Issuer == "" {
		c.Issuer = googleIssuer
	}
	if c.Google && c.Name == "" {
		c.Name = "Google"
	}
	return c
}
