package bearer

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/enforce"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/rule"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/tokenclaim"
)

// PolicyFeature is a Caddy module in the namespace fhir.bearer that provides a policy.
type PolicyFeature interface {
	// Policy returns the policy. It is called once, when the module is provisioned.
	Policy(s Site) (rule.Policy, error)
}

// AdmissionFeature is a Caddy module in the namespace fhir.bearer, or a feature of the fhir app, that provides an [Admission].
type AdmissionFeature interface {
	// Admission returns the admission for a fhir_bearer. It is called once, when the handler is provisioned.
	Admission(s Site) (Admission, error)
}

// Admission admits or rejects requests before scopes and policies are checked. The metrics count rejected requests as
// throttled, so errors should have the status 429. Admission must be safe for concurrent use.
type Admission interface {
	// AdmitUnverified returns an error to reject a request before its token is verified. It may set response headers.
	AdmitUnverified(w http.ResponseWriter, r *http.Request) error

	// Admit returns an error to reject a request that has a valid token. It may set response headers.
	Admit(w http.ResponseWriter, r *http.Request, t *guard.Token) error

	// RecordDecision is called with each decision based on scopes, including those for entries of a batch or transaction.
	RecordDecision(r *http.Request, b enforce.Bearer, d enforce.Decision)
}

// Site describes the fhir_bearer that a feature extends, for its policies and admissions.
type Site struct {
	// URL is the URL of the FHIR API without the path, or "" if it depends on the request. Base is the path.
	URL, Base string
	// HasApp reports whether the fhir app is configured.
	HasApp bool
	// Claims contains the names of additional claims of tokens, except groups.
	Claims []string
	// Providers is the number of the fhir app's identity providers, including the local users. Issuers is the number of other
	// issuers. Each of them chooses the names of groups and claims independently.
	Providers, Issuers int
	// Audit records an event in the audit log.
	Audit func(context.Context, audit.Event)
	// Logger is the logger of the fhir_bearer.
	Logger *slog.Logger
}

func (h *Bearer) newSite(ctx caddy.Context, at apiLocation, app App, auditLog *audit.Log) Site {
	s := Site{
		URL: at.url, Base: at.path, Claims: slices.Collect(maps.Keys(h.TokenClaims)), Issuers: len(h.Trust),
		Audit: auditLog.Record, Logger: ctx.Slogger(),
	}
	if app != nil {
		claims := app.TokenClaims()
		s.HasApp, s.Audit, s.Providers = true, app.Audit, len(claims)
		s.Claims = slices.Concat(append(slices.Collect(maps.Values(claims)), s.Claims)...)
	}
	if h.Introspection != nil && (!h.Introspection.IncludeJWTs || s.Issuers == 0) {
		s.Issuers++
	}
	return s
}

// loadExtensions returns the policies and admissions of all features: first those of the handler, by name, then those of the
// fhir app. app may be nil.
func (h *Bearer) loadExtensions(ctx caddy.Context, app App, s Site) (policies []rule.Policy, admissions []Admission, err error) {
	loaded, err := ctx.LoadModule(h, "FeaturesRaw")
	if err != nil {
		return nil, nil, fmt.Errorf("loading features: %w", err)
	}
	byName, _ := loaded.(map[string]any)
	var features []any
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		feature := byName[name]
		_, isAdmission := feature.(AdmissionFeature)
		if _, isPolicy := feature.(PolicyFeature); !isPolicy && !isAdmission { // otherwise, its rules would have no effect
			return nil, nil, fmt.Errorf("fhir.bearer.%s: %T is neither a PolicyFeature nor an AdmissionFeature", name, feature)
		}
		features = append(features, feature)
	}
	if app != nil {
		features = append(features, app.Features()...)
	}
	return collectExtensions(features, s)
}

func collectExtensions(features []any, s Site) (policies []rule.Policy, admissions []Admission, err error) {
	for _, feature := range features {
		if f, ok := feature.(PolicyFeature); ok {
			p, err := f.Policy(s)
			if err != nil {
				return nil, nil, err
			}
			policies = append(policies, p)
		}
		if f, ok := feature.(AdmissionFeature); ok {
			a, err := f.Admission(s)
			if err != nil {
				return nil, nil, err
			}
			admissions = append(admissions, a)
		}
	}
	return policies, admissions, nil
}

// policyClaims returns the claims that are read from other issuers' tokens for policies, or nil if there are no policies.
func (h *Bearer) policyClaims(policies []rule.Policy) *tokenclaim.Names {
	if len(policies) == 0 {
		return nil
	}
	return tokenclaim.NewNames(h.TokenClaims)
}

// notifyAdmissions returns a function that records decisions and then notifies the admissions.
func notifyAdmissions(record func(*http.Request, enforce.Bearer, enforce.Decision), admissions []Admission) func(*http.Request, enforce.Bearer, enforce.Decision) {
	if len(admissions) == 0 {
		return record
	}
	return func(r *http.Request, b enforce.Bearer, d enforce.Decision) {
		record(r, b, d)
		for _, a := range admissions {
			a.RecordDecision(r, b, d)
		}
	}
}
