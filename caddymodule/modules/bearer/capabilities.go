package bearer

import (
	"net/http"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/capability"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fhirapp"
)

// newMetadata is what changes the CapabilityStatement of the FHIR server to that of a guarded one; nil with scopes off.
func newMetadata(e *enforcement, at address, app App, hasCORS bool) *capability.Metadata {
	if e == nil {
		return nil
	}
	x := e.enforcer
	changes := capability.Changes{BaseURL: x.BaseURL, CORS: hasCORS, Operations: x.Operations}
	if app != nil {
		changes.OAuth = oauthURIs(at.issuer, app.Registers())
	}
	return &capability.Metadata{Base: at.path, Changes: changes, Limit: x.Limits.Answer, Memory: x.Memory, Answered: operationsBefore}
}

// oauthURIs are the endpoints that the CapabilityStatement names.
func oauthURIs(issuer string, registers bool) capability.OAuthURIs {
	uris := capability.OAuthURIs{
		Authorize: issuer + authorize.AuthorizePath, Token: issuer + authorize.TokenPath,
		Introspect: issuer + authorize.IntrospectPath, Revoke: issuer + authorize.RevokePath, Manage: issuer + authorize.AccountPath,
	}
	if registers {
		uris.Register = issuer + authorize.RegisterPath
	}
	return uris
}

// operationsBefore are the operations that fhir_expand has said it answers.
func operationsBefore(r *http.Request) []capability.AnsweredOperation {
	all, ok := caddyhttp.GetVar(r.Context(), fhirapp.AnsweredOperations).(bool)
	if !ok {
		return nil
	}
	return capability.TerminologyOperations(all)
}
