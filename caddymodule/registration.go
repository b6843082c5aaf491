package caddymodule

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/certmagic"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
)

// Registration lets apps register themselves (RFC 7591) at `/oauth2/register`, with
// the authorization code flow, PKCE and people's consent. They lie in Caddy's
// storage, and are known to all gateways that use it.
type Registration struct {
	// What whoever registers an app must know and send as a bearer token.
	// Required. Placeholders are supported.
	InitialAccessToken string `json:"initial_access_token,omitempty"`

	// The scopes that apps which register may ask for beside openid, email, phone
	// and profile. What is taken from this list, they lose. Default: none.
	Scopes []string `json:"scopes,omitempty"`

	// How many may register. Default: 1000.
	MaxClients int `json:"max_clients,omitempty"`

	// Let the `jwks_uri` of apps lead to loopback, private and link-local addresses
	// too, and through the proxy of the environment: whoever registers an app then
	// chooses what this server asks for in its own network. Default: to public
	// addresses alone.
	PrivateJWKSURI bool `json:"private_jwks_uri,omitempty"`
}

// registration is the registration as package authorize has it, with its token
// resolved; nil where there is none.
func (a *App) registration() (*client.Registration, error) {
	if a.Registration == nil {
		return nil, nil
	}
	token, err := resolveSecret(caddy.NewReplacer(), a.Registration.InitialAccessToken)
	if err != nil {
		return nil, fmt.Errorf("registration: initial_access_token: %w", err)
	}
	host := strings.TrimPrefix(a.Issuer, "https://")
	r := &client.Registration{
		InitialAccessToken: token, Scopes: a.Registration.Scopes, MaxClients: a.Registration.MaxClients,
		Storage: a.ctx.Storage(), Folder: "fhir/clients/" + certmagic.StorageKeys.Safe(host),
	}
	if a.Registration.PrivateJWKSURI {
		r.Transport = http.DefaultTransport
	}
	return r, nil
}

// parseRegistration reads who may register apps. Syntax:
//
//	registration {
//		initial_access_token <secret>
//		scope <scope...>
//		max_clients <number>
//		private_jwks_uri
//	}
func (a *App) parseRegistration(d *caddyfile.Dispenser) error {
	if d.NextArg() {
		return d.ArgErr()
	}
	a.Registration = new(Registration)
	err := subdirectives{
		"initial_access_token": word(&a.Registration.InitialAccessToken, checkPlaceholders),
		"scope":                scopes(&a.Registration.Scopes, client.CheckRegistrationScope),
		"max_clients":          number(&a.Registration.MaxClients),
		"private_jwks_uri":     bareword(&a.Registration.PrivateJWKSURI),
	}.parse(d)
	if err == nil && a.Registration.InitialAccessToken == "" {
		err = d.Err("registration needs an initial_access_token")
	}
	return err
}
