package policy

import (
	"context"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

// Judgement is what rules say of one request, and will say of the resources that it is about. The zero value leaves
// all to the scopes.
type Judgement struct {
	// Decision is what is said of the request by itself. If it is [Deny], nothing more is to be asked.
	Decision

	set            *Set
	in             *Input
	denies, allows []*rule // that depend on the resource
}

// MayDeny reports whether resources may be denied, so that each must be judged, even where scopes allow all.
func (j Judgement) MayDeny() bool { return len(j.denies) > 0 }

// MayAllow reports whether resources may be allowed that the scopes do not cover.
func (j Judgement) MayAllow() bool { return len(j.allows) > 0 }

// Resource says what the rules make of a resource, for this request. What was said of the request by itself is not
// repeated.
func (j Judgement) Resource(ctx context.Context, res resource.Resource) Decision {
	if !j.MayDeny() && !j.MayAllow() {
		return Decision{}
	}
	v := variables{in: j.in, resource: &elements{resource: res, names: j.set.elements}}
	for _, r := range j.denies {
		if yes, err := r.isTrue(ctx, r.program, v); yes || err != nil {
			return Decision{Effect: Deny, Rule: r.name, Err: err}
		}
	}
	var d Decision
	for _, r := range j.allows {
		yes, err := r.isTrue(ctx, r.program, v)
		d = d.or(r, yes, err)
	}
	return d
}
