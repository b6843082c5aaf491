package caddymodule

import (
	"net/http"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/enforce"
)

// answeredOperations is the variable of a request for the CapabilityStatement in which fhir_expand says that it answers
// operations before the FHIR server: true if all, false if $expand alone.
const answeredOperations = "fhir.answered_operations"

// newMetadata is what changes the CapabilityStatement of the FHIR server to that of a guarded one; nil with scopes off.
func (h *Bearer) newMetadata() *enforce.Metadata {
	if h.enforced == nil {
		return nil
	}
	changes := enforce.CapabilityChanges{
		BaseURL: h.enforced.BaseURL, CORS: h.cors != nil, Operations: h.enforced.Operations,
	}
	if h.app != nil {
		changes.OAuth = h.app.oauthURIs()
	}
	return &enforce.Metadata{Base: h.FHIRBase, Changes: changes, Limit: h.MaxAnswer, Memory: h.enforced.Memory, Answered: operationsBefore}
}

// oauthURIs are the endpoints that the CapabilityStatement names.
func (a *App) oauthURIs() enforce.OAuthURIs {
	uris := enforce.OAuthURIs{
		Authorize: a.Issuer + endpoint.Authorize, Token: a.Issuer + endpoint.Token,
		Introspect: a.Issuer + endpoint.Introspect, Revoke: a.Issuer + endpoint.Revoke, Manage: a.Issuer + endpoint.Account,
	}
	if a.Registration != nil {
		uris.Register = a.Issuer + endpoint.Register
	}
	return uris
}

// operationsBefore are the operations that fhir_expand has said it answers.
func operationsBefore(r *http.Request) []enforce.AnsweredOperation {
	all, ok := caddyhttp.GetVar(r.Context(), answeredOperations).(bool)
	if !ok {
		return nil
	}
	return enforce.TerminologyOperations(all)
}
