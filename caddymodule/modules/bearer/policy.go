package bearer

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/enforce"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/requester"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/tokenclaim"
)

// AccessPolicy is a rule of the site's own about who may see or do what, as a CEL expression over `token`, `request`,
// `resource` and `now`. docs/guard.md describes them.
type AccessPolicy struct {
	enforce.PolicyRule

	option.Source
}

// newPolicies compiles the site's rules.
func newPolicies(policies []AccessPolicy, claims []string, logger *slog.Logger) (enforce.Policies, error) {
	rules := make([]enforce.PolicyRule, len(policies))
	for i, p := range policies {
		rules[i] = p.PolicyRule
		rules[i].Place = p.Source.Source
	}
	set, err := enforce.CompilePolicies(rules)
	if err != nil {
		return enforce.Policies{}, err
	}
	return enforce.Policies{Rules: set, Input: policyInput(claims), Failed: policyFailed(logger)}, nil
}

// otherClaims are what rules may ask of other issuers' tokens; nil without rules.
func otherClaims(rules []AccessPolicy, names map[string]string) *tokenclaim.Names {
	if len(rules) == 0 {
		return nil
	}
	return tokenclaim.NewNames(names)
}

// claimNames are what rules may ask of any token. The app may be nil.
func claimNames(of map[string]string, app App) []string {
	names := slices.Collect(maps.Keys(of))
	if app != nil {
		names = slices.Concat(append(slices.Collect(maps.Values(app.TokenClaims())), names)...)
	}
	return names
}

// warnOfNamesakes logs which rules would take one provider's groups and claims for another's: of so many of ours, and other
// issuers.
func warnOfNamesakes(logger *slog.Logger, policies []AccessPolicy, ours, others int) {
	for _, p := range policies {
		mentions := func(name string) bool { return strings.Contains(p.Expression, "token."+name) }
		if ours+others > 1 && (mentions("groups") || mentions("claims")) && !mentions("idp") && (ours > 1 || !mentions("issuer")) {
			logger.Warn("anybody who can name a group or claim at one of several providers matches this rule: say whose it must be (token.idp == '<name>', or token.issuer)", "effect", p.Effect, "policy", p.Name, "place", p.Source.Source)
		}
	}
}

// policyInput is what rules are told of a request. Of the named claims, those that the token lacks have no values: whose
// token has them depends on its issuer.
func policyInput(claims []string) func(*http.Request, *guard.Token) enforce.PolicyInput {
	return func(r *http.Request, t *guard.Token) enforce.PolicyInput {
		named := make(map[string][]string, len(claims))
		for _, name := range claims {
			named[name] = t.Claims[name]
		}
		return enforce.PolicyInput{
			Token: enforce.PolicyToken{
				Issuer: t.Issuer, Subject: t.Subject, ClientID: t.ClientID, Scopes: strings.Fields(t.Scope), Patient: t.Patient,
				FHIRUser: t.FHIRUser, IDP: t.IDP, Groups: t.Groups, Claims: named,
			},
			Unread:  t.Unread,
			Request: enforce.PolicyRequest{ClientIP: requester.Address(r)}, Now: time.Now(),
		}
	}
}

// policyFailed logs which rule failed. Why, the error may say in words of a record, which do not belong into a log.
func policyFailed(logger *slog.Logger) func(*http.Request, error) {
	return func(r *http.Request, err error) {
		if errors.Is(err, tokenclaim.ErrUnread) {
			user, _ := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer).Get("http.auth.user.id")
			logger.Warn("claims of a person cannot be read, so that a policy denies, or allows nothing", "user", user, "error", err)
			return
		}
		rule, _, _ := strings.Cut(err.Error(), ":")
		logger.Error("policy could not be evaluated: it denies, or allows nothing; test for members that may be missing with has() or .?", "policy", rule)
	}
}

// parsePolicy reads a rule.
func parsePolicy(to *[]AccessPolicy) option.Setter {
	return func(d *caddyfile.Dispenser) error {
		var p AccessPolicy
		p.Effect = enforce.PolicyEffect(d.Val())
		p.SetSource(option.PositionOf(d))
		first, second, err := option.OneOrTwo(d)
		if err != nil {
			return err
		}
		if p.Expression = first; second != "" {
			p.Name, p.Expression = first, second
		}
		if _, err := enforce.CompilePolicies([]enforce.PolicyRule{p.PolicyRule}); err != nil {
			return d.WrapErr(fmt.Errorf("%s: %w", p.Effect, err))
		}
		*to = append(*to, p)
		return nil
	}
}
