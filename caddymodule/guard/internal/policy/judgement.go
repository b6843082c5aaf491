package policy

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/tokenclaim"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

// Decision is what rules say.
type Decision struct {
	// Effect is [Deny], [Allow], or empty if no rule applies.
	Effect Effect
	// Rule is the name of the rule that decided. Empty if none did.
	Rule string
	// Err says why that rule, or one that allows nothing for it, failed. It may hold what a resource says: it is for
	// the operator, not for the client.
	Err error
}

// decide is what rules say. One that fails denies, or does not allow; the first that allows decides.
func decide(ctx context.Context, denies, allows []*rule, v variables) (d Decision) {
	for _, r := range denies {
		if yes, err := r.isTrue(ctx, v); yes || err != nil {
			return Decision{Effect: Deny, Rule: r.name, Err: err}
		}
	}
	for _, r := range allows {
		yes, err := r.isTrue(ctx, v)
		if d.Err == nil {
			d.Err = err
		}
		if yes && d.Effect == "" {
			d.Effect, d.Rule = Allow, r.name
		}
	}
	return d
}

// isTrue evaluates a rule.
func (r *rule) isTrue(ctx context.Context, v variables) (bool, error) {
	value, err := r.evaluate(ctx, v)
	if types.IsUnknown(value) {
		err = fmt.Errorf("%w: %s", tokenclaim.ErrUnread, strings.Join(v.in.Unread, ", "))
	}
	if err != nil {
		return false, fmt.Errorf("rule %s: %w", r.name, err)
	}
	return value == types.True, nil
}

// evaluate returns [types.Unknown] if the value depends on what is unknown: claims that could not be read, and others.
func (r *rule) evaluate(ctx context.Context, v variables, unknown ...*cel.AttributePatternType) (ref.Val, error) {
	for _, name := range v.in.Unread {
		unknown = append(unknown, cel.AttributePattern("token").QualString("claims").QualString(name))
		if name == tokenclaim.Groups {
			unknown = append(unknown, cel.AttributePattern("token").QualString("groups"))
		}
	}
	if len(unknown) == 0 {
		value, _, err := r.program.ContextEval(ctx, v)
		return value, err
	}
	known, err := cel.PartialVars(v, unknown...)
	if err != nil {
		return nil, err
	}
	value, _, err := r.partial.ContextEval(ctx, known)
	return value, err
}

// Request says what the rules make of a request by itself. What depends on a resource, the [Judgement] says of it; a
// rule of which the request tells already that it does not apply is left out there.
func (s *Set) Request(ctx context.Context, in *Input) Judgement {
	if s == nil {
		return Judgement{}
	}
	v := variables{in: in}
	d := decide(ctx, s.denies.ofRequest, s.allows.ofRequest, v)
	if d.Effect == Deny {
		return Judgement{Decision: d}
	}
	return Judgement{Decision: d, set: s, in: in, denies: s.denies.open(ctx, v), allows: s.allows.open(ctx, v)}
}

// unknownResource stands for a resource that is not there yet.
var unknownResource = cel.AttributePattern(resourceName)

// open are the rules that could be true, or fail, for some resource.
func (l ruleList) open(ctx context.Context, v variables) (open []*rule) {
	for _, r := range l.ofResource {
		if value, err := r.evaluate(ctx, v, unknownResource); err == nil && value == types.False {
			continue
		}
		open = append(open, r)
	}
	return open
}

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

// LooksAt reports whether rules may look at an element of resources, or at what FHIR JSON adds to it.
func (j Judgement) LooksAt(element string) bool {
	return (j.MayDeny() || j.MayAllow()) && (slices.Contains(j.set.elements, element) || slices.Contains(j.set.elements, "_"+element))
}

// Resource says what the rules make of a resource, for this request. What was said of the request by itself is not
// repeated.
func (j Judgement) Resource(ctx context.Context, res resource.Resource) Decision {
	if !j.MayDeny() && !j.MayAllow() {
		return Decision{}
	}
	return decide(ctx, j.denies, j.allows, variables{in: j.in, resource: &elements{resource: res, names: j.set.elements}})
}

// DeniesType reports whether the rules deny all resources of a type, whatever else is in them.
func (j Judgement) DeniesType(ctx context.Context, resourceType string) bool {
	res, err := resource.Parse([]byte(`{"resourceType":` + strconv.Quote(resourceType) + `}`))
	if err != nil || !j.MayDeny() {
		return false
	}
	var unknown []*cel.AttributePatternType
	for _, name := range j.set.elements {
		if name != "resourceType" {
			unknown = append(unknown, cel.AttributePattern(resourceName).QualString(name))
		}
	}
	v := variables{in: j.in, resource: &elements{resource: res, names: j.set.elements}}
	return slices.ContainsFunc(j.denies, func(r *rule) bool {
		value, err := r.evaluate(ctx, v, unknown...)
		return err == nil && value == types.True
	})
}
