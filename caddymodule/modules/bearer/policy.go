package bearer

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/rule"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/tokenclaim"
)

// PolicyFeature is a Caddy module in the namespace fhir.bearer that provides a policy.
type PolicyFeature interface {
	// Policy returns the policy. It is called once, when the module is provisioned.
	Policy(s PolicySite) (rule.Policy, error)
}

// PolicySite describes the fhir_bearer of a policy.
type PolicySite struct {
	// Claims are the names of the claims that tokens may have besides groups.
	Claims []string
	// Providers is the number of the fhir app's identity providers, its own users included, and Issuers that of the other
	// issuers. Each may name groups and claims as it likes.
	Providers, Issuers int
	// Logger is the logger of the handler.
	Logger *slog.Logger
}

// policies returns the policies of all features, in the order of their names. The app may be nil.
func (h *Bearer) policies(ctx caddy.Context, app App) (policies []rule.Policy, err error) {
	loaded, err := ctx.LoadModule(h, "FeaturesRaw")
	if err != nil {
		return nil, fmt.Errorf("loading features: %w", err)
	}
	features, _ := loaded.(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(features)) {
		feature, ok := features[name].(PolicyFeature)
		if !ok { // its rules would not apply
			return nil, fmt.Errorf("fhir.bearer.%s: %T is not a PolicyFeature", name, features[name])
		}
		p, err := feature.Policy(h.policySite(ctx.Slogger(), app))
		if err != nil {
			return nil, err
		}
		policies = append(policies, p)
	}
	return policies, nil
}

func (h *Bearer) policySite(logger *slog.Logger, app App) PolicySite {
	s := PolicySite{Claims: slices.Collect(maps.Keys(h.TokenClaims)), Issuers: len(h.Trust), Logger: logger}
	if app != nil {
		claims := app.TokenClaims()
		s.Claims, s.Providers = slices.Concat(append(slices.Collect(maps.Values(claims)), s.Claims)...), len(claims)
	}
	if h.Introspection != nil && (!h.Introspection.All || s.Issuers == 0) {
		s.Issuers++
	}
	return s
}

// otherClaims are the claims that are read from other issuers' tokens, for policies; nil without policies.
func (h *Bearer) otherClaims(policies []rule.Policy) *tokenclaim.Names {
	if len(policies) == 0 {
		return nil
	}
	return tokenclaim.NewNames(h.TokenClaims)
}
