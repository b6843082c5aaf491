package policy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/rule"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/tokenclaim"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/modules/bearer"
)

func init() { caddy.RegisterModule(new(Policy)) }

// Policy allows or denies requests and resources by a site's own rules, on top of SMART scopes.
type Policy struct {
	// The site's own rules. Default: none.
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

// parseRule reads a rule.
func (p *Policy) parseRule(d *caddyfile.Dispenser) error {
	r := Rule{Effect: rule.Effect(d.Val())}
	r.SetSource(option.PositionOf(d))
	first, second, err := option.OneOrTwo(d)
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

// Policy implements [bearer.PolicyFeature]: it compiles the rules.
func (p *Policy) Policy(s bearer.Site) (rule.Policy, error) {
	p.claims, p.logger = s.Claims, s.Logger
	p.warnAmbiguousClaims(s)
	var err error
	p.set, err = Compile(p.Rules)
	return p, err
}

// warnAmbiguousClaims warns of rules that would take groups or claims of one provider for those of another.
func (p *Policy) warnAmbiguousClaims(s bearer.Site) {
	for _, r := range p.Rules {
		mentions := func(name string) bool { return strings.Contains(r.Expression, "token."+name) }
		if s.Providers+s.Issuers > 1 && (mentions("groups") || mentions("claims")) && !mentions("idp") && (s.Providers > 1 || !mentions("issuer")) {
			s.Logger.Warn("anybody who can name a group or claim at one of several providers matches this rule: say whose it must be (token.idp == '<name>', or token.issuer)", "effect", r.Effect, "policy", r.Name, "place", r.Source.Source)
		}
	}
}

// Judge implements [rule.Policy].
func (p *Policy) Judge(ctx context.Context, r rule.Request) rule.Judgement {
	return p.set.Request(ctx, newInput(r, p.claims))
}

// Failed implements [rule.Policy]: it logs which rule failed. The reason may contain patient data, which must not be logged.
func (p *Policy) Failed(r *http.Request, err error) {
	if errors.Is(err, tokenclaim.ErrUnread) {
		user, _ := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer).Get("http.auth.user.id")
		p.logger.Warn("claims of a person cannot be read, so that a policy denies, or allows nothing", "user", user, "error", err)
		return
	}
	name, _, _ := strings.Cut(err.Error(), ":")
	p.logger.Error("policy could not be evaluated: it denies, or allows nothing; test for members that may be missing with has() or .?", "policy", name)
}

var _ bearer.PolicyFeature = (*Policy)(nil)
