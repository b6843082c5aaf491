package caddymodule

import (
	"fmt"
	"net/http"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/certmagic"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fhirapp"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
)

// Registration lets clients register themselves (RFC 7591) at `/oauth2/register`. They may use the authorization code
// flow, with PKCE unless pkce says otherwise, and people are asked for consent. Registered clients are in Caddy's storage or, with store keys, in the
// durable store, shared by all gateways that use it.
type Registration struct {
	// The initial access token, which must be sent as a bearer token. Required. Placeholders are supported.
	InitialAccessToken string `json:"initial_access_token,omitempty"`

	// The scopes that registered clients may be granted beside openid, email, phone and profile. They lose what is
	// removed here. Default: none.
	Scopes []string `json:"scopes,omitempty"`

	// Whether authorization requests need a `code_challenge` (RFC 7636): `required`, or `optional` for confidential clients,
	// which can check the nonce of the ID token instead (RFC 9700 §2.1.1). Public clients always need one. Default:
	// `required`.
	PKCE string `json:"pkce,omitempty"`

	// Let clients put authorization requests into request objects (OpenID Connect Core §6), by value and, at addresses that
	// they registered, by reference, which this server then fetches. Default: they are refused.
	RequestObjects bool `json:"request_objects,omitempty"`

	// Let nobody use a client before the operator has approved it (`caddy fhir-client approve`). One that changes its
	// registration waits again. Default: false.
	Approval bool `json:"approval,omitempty"`

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
	resolved := &authorize.Registration{
		InitialAccessToken: token, Scopes: r.Scopes, PKCE: r.PKCE, Approval: r.Approval, RequestObjects: r.RequestObjects,
		Storage: storage, Folder: "fhir/clients/" + fhirapp.StorageName(issuer), Store: shared,
	}
	if r.PrivateJWKSURI {
		resolved.Transport = http.DefaultTransport
	}
	return resolved, nil
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
			"scope":                option.Scopes(&r.Scopes, authorize.CheckRegistrationScope),
			"max_clients":          option.Gone("1000 clients may register"),
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
