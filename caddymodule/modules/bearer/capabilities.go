package bearer

import (
	"net/http"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/fhirapp"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/enforce"
)

// newMetadata is what changes the CapabilityStatement of the FHIR server to that of a guarded one; nil with scopes off.
func (h *Bearer) newMetadata() *enforce.Metadata {
	if h.enforced == nil {
		return nil
	}
	changes := enforce.CapabilityChanges{
		BaseURL: h.enforced.BaseURL, CORS: h.cors != nil, Operations: h.enforced.Operations,
	}
	if h.app != nil {
		changes.OAuth = h.oauthURIs()
	}
	return &enforce.Metadata{Base: h.FHIRBase, Changes: changes, Limit: h.MaxAnswer, Memory: h.enforced.Memory, Answered: operationsBefore}
}

// oauthURIs are the endpoints that the CapabilityStatement names.
func (h *Bearer) oauthURIs() enforce.OAuthURIs {
	uris := enforce.OAuthURIs{
		Authorize: h.issuer + endpoint.Authorize, Token: h.issuer + endpoint.Token,
		Introspect: h.issuer + endpoint.Introspect, Revoke: h.issuer + endpoint.Revoke, Manage: h.issuer + endpoint.Account,
	}
	if h.app.Registers() {
		uris.Register = h.issuer + endpoint.Register
	}
	return uris
}

// operationsBefore are the operations that fhir_expand has said it answers.
func operationsBefore(r *http.Request) []enforce.AnsweredOperation {
	all, ok := caddyhttp.GetVar(r.Context(), fhirapp.AnsweredOperations).(bool)
	if !ok {
		return nil
	}
	return enforce.TerminologyOperations(all)
}
