package bearer

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/crossorigin"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fhirbase"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fhirerror"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/metrics"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/pace"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/placement"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/tokenclaim"
)

func init() {
	caddy.RegisterModule(new(Bearer))
	option.RegisterHandler("fhir_bearer", httpcaddyfile.Before, "request_header", func() option.Handler { return new(Bearer) })
}

// Bearer (directive fhir_bearer) protects a FHIR R4 server: requests pass only with a valid access token, and only as far as
// its SMART scopes allow. Every response is checked, too, so the FHIR server does not have to enforce anything.
//
// Tokens are those of the fhir app, or of issuers that you trust, such as Keycloak, Entra ID or Okta (RFC 6750, RFC 9068,
// RFC 7662). Bearer sets the placeholders `{http.auth.user.id}`, `{http.auth.user.client_id}`, `scope`, `patient`, `fhir_user`
// and `issuer`; only `id` and `issuer` together identify a user. It removes headers in which a client could claim another
// identity.
//
// `GET {fhir_base}/metadata` needs no token, because apps read there how to get one. Without the fhir app, neither
// does `{fhir_base}/.well-known/smart-configuration`, which names the endpoints of the first trusted issuer, nor
// `{fhir_base}/.well-known/oauth-protected-resource`, which names all issuers (RFC 9728).
type Bearer struct {
	// The path of the FHIR API; without the fhir app also its URL, such as `https://fhir.example.org/fhir/R4`, which
	// stands in links. Default: that of the fhir app; without it, the path `/fhir/R4` at the address of the site. A site
	// that has no name of its own, or no TLS, needs the URL.
	FHIRBase string `json:"fhir_base,omitempty"`

	// Other issuers whose access tokens are accepted. With these or introspection, the fhir app is not needed.
	// Default: none.
	Trust []TrustedIssuer `json:"trust,omitempty"`

	// How to verify tokens that are not JWTs. Default: they are refused.
	Introspection *Introspection `json:"introspect,omitempty"`

	// What the first trusted issuer offers to SMART apps beyond its discovery document. Default: nothing.
	Offer *Offer `json:"smart_configuration,omitempty"`

	// Further claims of other issuers' tokens, and of introspected ones, for policies: theirs, or paths such as
	// `realm_access.roles`, by ours. `groups` is the claim `groups`, unless it is named otherwise here. At most 20.
	// Default: none.
	TokenClaims map[string]string `json:"token_claims,omitempty"`

	// The headers that are passed on; all others are removed. `fhir` stands for those of FHIR's REST API and of
	// tracing (`Accept`, `If-Match`, `Prefer`, `X-Request-Id`, …). A `*` at the beginning or end matches any rest,
	// except for the usual identity headers, which must be named in full. Headers that describe the body or
	// connection, such as `Content-Type`, or the request's origin are always passed on. `*` stands for all but identity
	// headers. `Authorization`, named in full, leaves the access token on the request, which whoever reads it could use
	// again. Default: `fhir`.
	ForwardHeaders []string `json:"forward_headers,omitempty"`

	// The origins whose scripts may call the API (CORS): `https://app.example.org`, `clients` for those of the fhir
	// app's redirect URIs, `*` for all. Preflights are answered here, and CORS headers of the next handler are
	// replaced. `{fhir_base}/metadata` is open to all. Default: `clients` with the fhir app; without it, CORS is left
	// to other handlers.
	CORS []string `json:"cors,omitempty"`

	// Optional features, by the names of their modules; in a Caddyfile, their subdirectives are among those of fhir_bearer.
	// Default: none.
	FeaturesRaw caddy.ModuleMap `json:"features,omitempty" caddy:"namespace=fhir.bearer"`

	SignInPolicy

	Enforcement

	option.Source

	gate     *gate
	failures *fhirerror.Log
	sites    *placement.Sites
	located  sync.Once // the site was asked
	keys     heldKeys
}

// CaddyModule returns the Caddy module information.
func (*Bearer) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.fhir_bearer", New: func() caddy.Module { return new(Bearer) }}
}

// Provision sets up verification. Keys are fetched on first use.
func (h *Bearer) Provision(ctx caddy.Context) (err error) {
	defer func() { err = h.Wrap(err) }()
	app, err := fhirbase.FindAny[App](ctx)
	if err != nil {
		return err
	}
	if app == nil && len(h.Trust) == 0 && h.Introspection == nil {
		return fhirbase.ErrNone
	}
	at, err := newAddress(ctx, h.FHIRBase, app)
	if err != nil {
		return err
	}
	h.FHIRBase, h.failures = at.path, fhirerror.NewHandlerLog(ctx)
	if err := h.checkWords(); err != nil {
		return err
	}
	if err := metrics.Register(ctx); err != nil {
		return err
	}
	if h.gate, err = h.newGate(ctx, at, app); err != nil {
		return err
	}
	if h.gate.enforced != nil {
		bearersInUse.Store(h, nil)
	}
	h.sites, err = placement.Checks(ctx)
	return err
}

// checkWords checks what a Caddyfile has checked before.
func (h *Bearer) checkWords() error {
	if err := h.checkClasses(len(h.Trust) == 0 && h.Introspection == nil); err != nil {
		return err
	}
	if err := tokenclaim.CheckAll(h.TokenClaims); err != nil {
		return err
	}
	for _, name := range h.ForwardHeaders {
		if err := guard.CheckHeaderPattern(name); err != nil {
			return err
		}
	}
	return nil
}

func isAuthorization(name string) bool { return strings.EqualFold(name, "Authorization") }

// newGate is what requests pass as configured. The app may be nil.
func (h *Bearer) newGate(ctx caddy.Context, at address, app App) (*gate, error) {
	g := &gate{
		at: at, forwardToken: slices.ContainsFunc(h.ForwardHeaders, isAuthorization), signIn: &h.SignInPolicy,
		headers: guard.NewIdentityHeaders(nil, h.ForwardHeaders),
	}
	g.misplaced.logger, g.misplaced.failures = ctx.Slogger(), h.failures
	trail := newAccessLog(ctx, app, h.AuditReads)
	site := h.newSite(ctx, at, app, trail.events)
	policies, admissions, err := h.extensions(ctx, app, site)
	if err != nil {
		return nil, err
	}
	g.admissions, g.audit = admissions, site.Audit
	if g.cors, err = newCORS(h.CORS, app); err != nil {
		return nil, err
	}
	trusted, err := keysOf(ctx, h.Trust, &h.keys)
	if err != nil {
		return nil, err
	}
	g.smart, g.resource = newSMARTConfiguration(at, trusted, h.Offer), newProtectedResource(at, h.Trust, h.Introspection)
	g.locate(at.url)
	asking, err := h.Introspection.keysOf(ctx, &h.keys)
	if err != nil {
		return nil, err
	}
	verifiers, err := newGuard(at, app, h.Trust, trusted, h.Introspection, asking, h.otherClaims(policies))
	if err != nil {
		return nil, err
	}
	g.asks = authenticator{at: at, guard: verifiers, hasPolicies: len(policies) > 0}
	if app != nil {
		g.asks.holders = app
	}
	if g.enforced, err = newEnforcement(ctx, &h.Enforcement, policies, at, app, decisions(trail.record, admissions)); err != nil {
		return nil, err
	}
	if g.metadata = newMetadata(g.enforced, at, app, g.cors != nil); g.enforced != nil {
		g.enforced.enforcer.Metadata = g.metadata
	}
	return g, nil
}

// Cleanup releases the issuers' keys that Provision took.
func (h *Bearer) Cleanup() error {
	bearersInUse.Delete(h)
	return h.keys.release()
}

// ServeHTTP implements caddyhttp.MiddlewareHandler.
func (h *Bearer) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	h.located.Do(h.locate)
	defer pace.FHIR.Limit(w, r)()
	return fhirerror.Answer(w, r, h.FHIRBase, h.failures, h.gate.serve(w, r, asked(r, fhirerror.OrNotFound{Next: next}, h.FHIRBase)))
}

// asksSite reports whether the site must tell the URL of the API: answers are judged, and have links.
func (h *Bearer) asksSite() bool { return h.gate.at.url == "" && h.gate.enforced != nil }

// locate learns the URL of the API from the site, before the first request is served.
func (h *Bearer) locate() {
	if h.asksSite() {
		h.gate.enforced.enforcer.BaseURL = h.sites.BaseURL(h)
		h.gate.metadata.Changes.BaseURL = h.gate.enforced.enforcer.BaseURL
		h.gate.locate(h.gate.enforced.enforcer.BaseURL)
	}
}

// Placed implements [placement.Handler].
func (h *Bearer) Placed() placement.Placed {
	return placement.Placed{Directive: "fhir_bearer", Source: h.Source.Source, FHIRBase: h.FHIRBase}
}

// WithoutURL implements [placement.Guard].
func (h *Bearer) WithoutURL() error {
	if !h.asksSite() {
		return nil
	}
	return h.Wrap(errNoBaseURL)
}

// CheckApp implements [option.AppUser].
func (h *Bearer) CheckApp() error {
	if len(h.Trust) == 0 && h.Introspection == nil {
		return fmt.Errorf("%w; or name another issuer with trust or introspect", fhirbase.ErrNone)
	}
	for _, t := range h.Trust {
		if t.Audience == "" {
			return fmt.Errorf("trust %s: %w", t.Issuer, errNoAudience)
		}
	}
	if i := h.Introspection; i != nil && i.Audience == "" {
		return fmt.Errorf("introspect %s: %w", i.Endpoint, errNoAudience)
	}
	return crossorigin.CheckClients(h.CORS)
}

var (
	_ caddy.Provisioner           = (*Bearer)(nil)
	_ caddy.CleanerUpper          = (*Bearer)(nil)
	_ caddyhttp.MiddlewareHandler = (*Bearer)(nil)
	_ caddyfile.Unmarshaler       = (*Bearer)(nil)
	_ option.AppUser              = (*Bearer)(nil)
	_ placement.Guard             = (*Bearer)(nil)
)
