package bearer

import (
	"net/http"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/capability"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fhirbase"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/requester"
)

// newMetadata is what changes the CapabilityStatement of the FHIR server to that of a guarded one; nil with scopes off.
func newMetadata(e *enforcement, at address, app App, hasCORS bool) *capability.Metadata {
	if e == nil {
		return nil
	}
	x := e.enforcer
	changes := capability.Changes{BaseURL: x.BaseURL, CORS: hasCORS, Operations: x.Operations}
	if app != nil {
		changes.OAuth = app.OAuthURIs()
	}
	return &capability.Metadata{Base: at.path, Changes: changes, Limit: x.Limits.Answer, Memory: x.Memory, Network: requester.NetworkOf, Answered: operationsBefore}
}

// operationsBefore are the operations that fhir_expand has said it answers.
func operationsBefore(r *http.Request) []capability.AnsweredOperation {
	all, ok := caddyhttp.GetVar(r.Context(), fhirbase.AnsweredOperations).(bool)
	if !ok {
		return nil
	}
	return capability.TerminologyOperations(all)
}
