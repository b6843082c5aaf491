package authorize

import (
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
)

// Endpoints below the issuer.
const (
	AuthorizePath  = endpoint.Authorize
	TokenPath      = endpoint.Token
	RevokePath     = endpoint.Revoke
	IntrospectPath = endpoint.Introspect
	AccountPath    = endpoint.Account
)

// EndpointNames returns all that [EndpointName] returns.
func EndpointNames() []string { return endpoint.Names() }

// EndpointName is the name of a path's endpoint in metrics: the word after /oauth2/, or a document's name.
func EndpointName(path string) string { return endpoint.Name(path) }
