package fhirapp

import (
	"fmt"
	"net/http"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/certmagic"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fhirbase"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/scopeoption"
)

// Registration lets clients register themselves (RFC 7591) at `/oauth2/register`. They may use the authorization code
// flow, with PKCE unless pkce says otherwise, and people are asked for consent. Registered clients are in Caddy's storage or, with store keys, in the
// durable store, shared by all gateways that use it.
type Registration struct {
	authorize.Registration

	// Send requests to what clients register (`jwks_uri`, `request_uris`, `logo_uri`, `backchannel_logout_uri`) at loopback, private and link-local
	// addresses too, and use the proxy of the environment. Whoever registers a client can then make this server send
	// requests to its own network. Default: public addresses only.
	PrivateJWKSURI bool `json:"private_jwks_uri,omitempty"`
}

// resolved is the registration for package authorize, with the placeholders of its token replaced; nil if there is
// none.
func (r *Registration) resolved(issuer string, storage certmagic.Storage, shared store.Store) (*authorize.Registration, error) {
	if r == nil {
		return nil, nil
	}
	token, err := option.ResolveSecret("initial_access_token", r.InitialAccessToken)
	if err != nil {
		return nil, fmt.Errorf("registration: %w", err)
	}
	resolved := r.Registration
	resolved.InitialAccessToken, resolved.Storage, resolved.Folder, resolved.Store = token, storage, "fhir/clients/"+fhirbase.StorageName(issuer), shared
	if r.PrivateJWKSURI {
		resolved.Transport = http.DefaultTransport
	}
	return &resolved, nil
}

// parseRegistration reads the registration.
func parseRegistration(to **Registration) option.Setter {
	return func(d *caddyfile.Dispenser) error {
		if d.NextArg() {
			return d.ArgErr()
		}
		r := new(Registration)
		*to = r
		err := option.Block{
			"initial_access_token": option.Word(&r.InitialAccessToken, option.CheckPlaceholders),
			"scope":                scopeoption.Words(&r.Scopes, authorize.CheckRegistrationScope),
			"pkce":                 option.Word(&r.PKCE, option.OneOf(authorize.PKCERequired, authorize.PKCEOptional)),
			"approval":             option.Only("required", &r.Approval),
			"request_objects":      option.Bareword(&r.RequestObjects),
			"private_jwks_uri":     option.Bareword(&r.PrivateJWKSURI),
		}.Parse(d)
		if err == nil && r.InitialAccessToken == "" {
			err = d.Err("registration needs an initial_access_token")
		}
		return err
	}
}
