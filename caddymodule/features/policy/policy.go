// Package policy evaluates rules that an operator writes in CEL: the subdirectives `allow` and `deny` of fhir_bearer.
//
// Rules fail safe: a deny rule that cannot be evaluated denies, and an allow rule that cannot be evaluated does not allow.
//
// References: Common Expression Language (https://cel.dev).
package policy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/rule"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/tokenclaim"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/modules/bearer"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

func init() { caddy.RegisterModule(new(Policy)) }

// Policy allows or denies requests and resources by custom rules, in addition to SMART scopes.
type Policy struct {
	// The rules. Default: none.
	Rules []Rule `json:"rules,omitempty"`

	set    *Set
	claims []string
	logger *slog.Logger
}

// CaddyModule returns the Caddy module information.
func (*Policy) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "fhir.bearer.policy", New: func() caddy.Module { return new(Policy) }}
}

// Subdirectives implements [option.Feature].
func (p *Policy) Subdirectives() (fields option.Block, repeatable []string) {
	return option.Block{"allow": p.parseRule, "deny": p.parseRule}, []string{"allow", "deny"}
}

func (p *Policy) parseRule(d *caddyfile.Dispenser) error {
	r := Rule{Effect: rule.Effect(d.Val())}
	r.SetSource(option.PositionOf(d))
	first, second, err := option.ParseOneOrTwo(d)
	if err != nil {
		return err
	}
	if r.Expression = first; second != "" {
		r.Name, r.Expression = first, second
	}
	if _, err := Compile([]Rule{{Effect: r.Effect, Name: r.Name, Expression: r.Expression}}); err != nil {
		return d.WrapErr(fmt.Errorf("%s: %w", r.Effect, err))
	}
	p.Rules = append(p.Rules, r)
	return nil
}

// Policy implements [bearer.PolicyFeature]. It compiles the rules.
func (p *Policy) Policy(s bearer.Site) (rule.Policy, error) {
	p.claims, p.logger = s.Claims, s.Logger
	p.warnAmbiguousClaims(s)
	var err error
	p.set, err = Compile(p.Rules)
	return p, err
}

// warnAmbiguousClaims logs a warning for each rule that would not distinguish groups or claims of different identity providers.
func (p *Policy) warnAmbiguousClaims(s bearer.Site) {
	for _, r := range p.Rules {
		usesToken := func(name string) bool { return strings.Contains(r.Expression, "token."+name) }
		if s.Providers+s.Issuers > 1 && (usesToken("groups") || usesToken("claims")) && !usesToken("idp") && (s.Providers > 1 || !usesToken("issuer")) {
			s.Logger.Warn("policy rule matches groups or claims of any provider: restrict it with token.idp == '<name>' or token.issuer", "effect", r.Effect, "policy", r.Name, "place", r.Source.Source)
		}
	}
}

// Evaluate implements [rule.Policy].
func (p *Policy) Evaluate(ctx context.Context, r rule.Request) rule.Evaluation {
	return p.set.Evaluate(ctx, newInput(r, p.claims))
}

// ReportFailure implements [rule.Policy]. It logs the failed rule or the unread claims. The text of other errors must not be
// logged, because it may contain patient data.
func (p *Policy) ReportFailure(r *http.Request, err error) {
	if errors.Is(err, tokenclaim.ErrUnreadClaims) {
		user, _ := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer).Get("http.auth.user.id")
		p.logger.Warn("policy not fully evaluated: user claims not readable", "user", user, "error", err)
		return
	}
	name, _, _ := strings.Cut(err.Error(), ":")
	p.logger.Error("policy evaluation failed: test optional elements with has() or .?", "policy", name)
}

var _ bearer.PolicyFeature = (*Policy)(nil)

// decide evaluates the rules. If a deny rule fails, the result is a denial. An allow rule that fails does not allow. The first
// allow rule that matches determines the decision.
func decide(ctx context.Context, denies, allows []*compiledRule, v variables) (d rule.Decision) {
	for _, r := range denies {
		if yes, err := r.matches(ctx, v); yes || err != nil {
			return rule.Decision{Effect: rule.Deny, Rule: r.name, Err: err}
		}
	}
	for _, r := range allows {
		yes, err := r.matches(ctx, v)
		if d.Err == nil {
			d.Err = err
		}
		if yes && d.Effect == "" {
			d.Effect, d.Rule = rule.Allow, r.name
		}
	}
	return d
}

func (r *compiledRule) matches(ctx context.Context, v variables) (bool, error) {
	value, err := r.evaluate(ctx, v)
	if types.IsUnknown(value) {
		err = fmt.Errorf("%w: %s", tokenclaim.ErrUnreadClaims, strings.Join(v.input.UnreadClaims, ", "))
	}
	if err != nil {
		return false, fmt.Errorf("rule %s: %w", r.name, err)
	}
	return value == types.True, nil
}

// evaluate returns the value of the expression: [types.Unknown] if it depends on unread claims or the unknown attributes.
func (r *compiledRule) evaluate(ctx context.Context, v variables, unknown ...*cel.AttributePatternType) (ref.Val, error) {
	for _, name := range v.input.UnreadClaims {
		unknown = append(unknown, cel.AttributePattern("token").QualString("claims").QualString(name))
		if name == tokenclaim.DefaultGroupsClaim {
			unknown = append(unknown, cel.AttributePattern("token").QualString("groups"))
		}
	}
	if len(unknown) == 0 {
		value, _, err := r.program.ContextEval(ctx, v)
		return value, err
	}
	partial, err := cel.PartialVars(v, unknown...)
	if err != nil {
		return nil, err
	}
	value, _, err := r.partialProgram.ContextEval(ctx, partial)
	return value, err
}

// Evaluate evaluates the rules for a request. The result omits resource rules that cannot apply to this request.
func (s *Set) Evaluate(ctx context.Context, in *Input) rule.Evaluation {
	v := variables{input: in}
	j := rule.Evaluation{Decision: decide(ctx, s.denyRules.requestRules, s.allowRules.requestRules, v)}
	if j.Effect == rule.Deny {
		return j
	}
	denies, allows := s.denyRules.pending(ctx, v), s.allowRules.pending(ctx, v)
	if len(denies)+len(allows) > 0 {
		j.Resources = &pendingRules{elements: s.elements, input: in, denies: denies, allows: allows}
	}
	return j
}

// unknownResource is the pattern of attributes of a resource that is not available yet.
var unknownResource = cel.AttributePattern(resourceName)

// pending returns the resource rules that could be true or fail for some resource.
func (l ruleList) pending(ctx context.Context, v variables) (pending []*compiledRule) {
	for _, r := range l.resourceRules {
		if value, err := r.evaluate(ctx, v, unknownResource); err == nil && value == types.False {
			continue
		}
		pending = append(pending, r)
	}
	return pending
}

// pendingRules are the rules that depend on both the request and the resource.
type pendingRules struct {
	elements       []string // resource elements that rules use
	input          *Input
	denies, allows []*compiledRule
}

// MayDeny implements [rule.ResourceEvaluator].
func (o *pendingRules) MayDeny() bool { return len(o.denies) > 0 }

// MayAllow implements [rule.ResourceEvaluator].
func (o *pendingRules) MayAllow() bool { return len(o.allows) > 0 }

// DependsOn implements [rule.ResourceEvaluator]. Rules may also use an element's extensions in FHIR JSON.
func (o *pendingRules) DependsOn(element string) bool {
	return slices.Contains(o.elements, element) || slices.Contains(o.elements, "_"+element)
}

// Evaluate implements [rule.ResourceEvaluator].
func (o *pendingRules) Evaluate(ctx context.Context, res resource.Resource) rule.Decision {
	return decide(ctx, o.denies, o.allows, o.variables(res))
}

func (o *pendingRules) variables(res resource.Resource) variables {
	return variables{input: o.input, resource: &lazyResource{resource: res, names: o.elements}}
}

// DeniesType implements [rule.ResourceEvaluator].
func (o *pendingRules) DeniesType(ctx context.Context, resourceType string) bool {
	res, err := resource.Parse([]byte(`{"resourceType":` + strconv.Quote(resourceType) + `}`))
	if err != nil {
		return false
	}
	var unknown []*cel.AttributePatternType
	for _, name := range o.elements {
		if name != "resourceType" {
			unknown = append(unknown, cel.AttributePattern(resourceName).QualString(name))
		}
	}
	v := o.variables(res)
	return slices.ContainsFunc(o.denies, func(r *compiledRule) bool {
		value, err := r.evaluate(ctx, v, unknown...)
		return err == nil && value == types.True
	})
}
