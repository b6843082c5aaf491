package authorize

import (
	"net/http"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/internal/endpoint"
)

// Endpoints below the issuer.
const (
	AuthorizePath  = endpoint.Authorize
	TokenPath      = endpoint.Token
	RevokePath     = endpoint.Revoke
	IntrospectPath = endpoint.Introspect
	RegisterPath   = endpoint.Register
	AccountPath    = endpoint.Account
	LaunchPagePath = endpoint.LaunchPage

	ProtectedResourcePath = endpoint.ProtectedResource // and the path of the FHIR API (RFC 9728 §3.1)
)

// EndpointNames are all that [EndpointName] returns.
var EndpointNames = endpoint.Names

// EndpointName is the name of a path's endpoint in metrics: the word after /oauth2/, or a document's name.
func EndpointName(path string) string { return endpoint.Name(path) }

// SetRetryAfter says with the status 503 when to try again (RFC 9110 §15.6.4), unless that is known better.
func SetRetryAfter(h http.Header, status int) { endpoint.SetRetryAfter(h, status) }
