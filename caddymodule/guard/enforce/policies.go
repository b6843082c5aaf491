package enforce

import (
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/judge"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/policy"
)

type (
	// Policies are a site's own rules, on top of what scopes say.
	Policies = judge.Policies

	// PolicyRule is one rule of a site.
	PolicyRule = policy.Rule

	// PolicyEffect is what a rule does if its expression is true.
	PolicyEffect = policy.Effect

	// PolicyInput is what rules know besides the resource.
	PolicyInput = policy.Input

	// PolicyToken is what rules know of the access token.
	PolicyToken = policy.Token

	// PolicyRequest is what rules know of a request.
	PolicyRequest = policy.Request
)

// CompilePolicies checks rules. It returns nil for none, and the errors of all that are wrong.
func CompilePolicies(rules []PolicyRule) (*policy.Set, error) { return policy.Compile(rules) }
