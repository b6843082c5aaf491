package policy

import (
	"context"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
)

// Request says what the rules make of a request by itself. What depends on a resource, the [Judgement] says of it; a
// rule of which the request tells already that it does not apply is left out there.
func (s *Set) Request(ctx context.Context, in *Input) Judgement {
	if s == nil {
		return Judgement{}
	}
	j := Judgement{set: s, in: in}
	v := variables{in: in}
	for _, r := range s.denies {
		if r.partial != nil {
			j.denies = r.addOpen(ctx, j.denies, v)
		} else if yes, err := r.isTrue(ctx, r.program, v); yes || err != nil {
			return Judgement{Decision: Decision{Effect: Deny, Rule: r.name, Err: err}}
		}
	}
	for _, r := range s.allows {
		if r.partial != nil {
			j.allows = r.addOpen(ctx, j.allows, v)
			continue
		}
		yes, err := r.isTrue(ctx, r.program, v)
		j.Decision = j.or(r, yes, err)
	}
	return j
}

// unknownResource stands for a resource that is not there yet.
var unknownResource = cel.AttributePattern(resourceName)

// addOpen adds a rule that could be true, or fail, for some resource.
func (r *rule) addOpen(ctx context.Context, open []*rule, v variables) []*rule {
	known, err := cel.PartialVars(v, unknownResource)
	if err == nil {
		if value, _, err := r.partial.ContextEval(ctx, known); err == nil && value == types.False {
			return open
		}
	}
	return append(open, r)
}
