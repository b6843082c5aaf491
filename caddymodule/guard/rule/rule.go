// Package rule is the extension point for policies that restrict or extend access to FHIR requests beyond SMART scopes, such as
// site-specific rules or treatment relationships. A [Policy] allows or denies a request. If the decision depends on resources,
// the policy judges each resource of the request and of its response.
//
// Policies are combined: a single deny denies the request or resource; otherwise, a single allow suffices. If no policy
// applies, the scopes determine access.
package rule

import (
	"context"
	"net/http"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

// Effect is the effect of a decision. Every value except [Allow] and the empty one denies.
type Effect string

// Effects. Deny overrides Allow and the scopes.
const (
	Allow Effect = "allow"
	Deny  Effect = "deny"
)

// Decision is the decision of a policy for a request or a resource. The zero value means that the scopes determine access.
type Decision struct {
	// Effect is [Allow], [Deny], or empty if the scopes determine access.
	Effect Effect
	// Rule is the name of the rule that made the decision, for the description of a rejection and for the audit log.
	Rule string
	// Err is the error of a rule that could not be evaluated. A policy must not return [Allow] because of such a rule; if the
	// rule would deny, the policy must return [Deny]. The error may contain patient data, so it is not sent to clients.
	Err error
}

// Policy judges requests. Implementations must be safe for concurrent use.
type Policy interface {
	// Evaluate judges a client's request, or an entry of its batch.
	Evaluate(ctx context.Context, r Request) Evaluation

	// ReportFailure is called for each [Decision.Err] of the policy, with the client's request, so that the policy can log or
	// count errors.
	ReportFailure(r *http.Request, err error)
}

// Request is the request that a policy judges.
type Request struct {
	// ClientRequest is the client's request, which may be a batch that contains this request as an entry.
	ClientRequest *http.Request
	// Token is the verified access token; may be nil.
	Token *guard.Token
	// Method is the HTTP method.
	Method string
	// Interaction is the FHIR interaction. It includes the parameters of the query and of a search form.
	Interaction interaction.Interaction
}

// Evaluation is the result of judging a request.
type Evaluation struct {
	// Decision is the decision for the request as a whole. If it is [Deny], no resource is judged.
	Decision
	// Resources judges the resources of the request and of its response. It is nil if no decision depends on a resource.
	Resources ResourceEvaluator
}

// ResourceEvaluator judges the resources of one request.
type ResourceEvaluator interface {
	// MayDeny reports whether [ResourceEvaluator.Evaluate] may deny a resource. If so, each resource is judged, even if scopes cover
	// all resources, and requests that could otherwise reveal denied resources are rejected.
	MayDeny() bool

	// MayAllow reports whether [ResourceEvaluator.Evaluate] may allow a resource that no scope covers.
	MayAllow() bool

	// Evaluate judges a resource. Its result does not include the decision for the request as a whole.
	Evaluate(ctx context.Context, res resource.Resource) Decision

	// DeniesType reports whether all resources of a type are denied regardless of their content. It returns false if unknown.
	DeniesType(ctx context.Context, resourceType string) bool

	// DependsOn reports whether decisions may depend on an element of resources. Large elements that are not needed, such as
	// Binary.data, are not requested from the FHIR server.
	DependsOn(element string) bool
}
