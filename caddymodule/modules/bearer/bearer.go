package bearer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/crossorigin"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fhirbase"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fhirerror"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/metrics"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/placement"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/slowbody"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/tokenclaim"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/modules/stores"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
)

func init() {
	caddy.RegisterModule(new(Bearer))
	option.RegisterHandler("fhir_bearer", httpcaddyfile.Before, "request_header", func() option.Handler { return new(Bearer) })
}

// Bearer (directive fhir_bearer) protects a FHIR R4 server. Requests require a valid access token and are permitted only within
// its SMART scopes. Every response is checked too, so the FHIR server does not have to enforce anything.
//
// Tokens are issued by the fhir app or by trusted issuers, such as Keycloak, Entra ID or Okta (RFC 6750, RFC 9068, RFC 7662).
// Bearer sets the placeholders `{http.auth.user.id}`, `{http.auth.user.client_id}`, `scope`, `patient`, `fhir_user` and
// `issuer`; only the combination of `id` and `issuer` identifies a user. It removes headers in which a client could claim
// another identity.
//
// `GET {fhir_base}/metadata` does not require a token, because it contains the OAuth endpoints for apps. Without the fhir app,
// two more documents are public: `{fhir_base}/.well-known/smart-configuration` with the endpoints of the first trusted issuer,
// and `{fhir_base}/.well-known/oauth-protected-resource` with all issuers (RFC 9728).
type Bearer struct {
	// The path of the FHIR API. Without the fhir app, it may also be the URL of the API, such as
	// `https://fhir.example.org/fhir/R4`, which is used in links; the URL is required if the site has no host name or no TLS.
	// Default: the base of the fhir app; without the app, the path `/fhir/R4` at the site's address.
	FHIRBase string `json:"fhir_base,omitempty"`

	// Other trusted issuers of access tokens. With these or introspection, the fhir app is not required. Default: none.
	Trust []TrustedIssuer `json:"trust,omitempty"`

	// How opaque tokens are verified. Default: opaque tokens are rejected.
	Introspection *Introspection `json:"introspect,omitempty"`

	// SMART capabilities and scopes that the first trusted issuer supports but its discovery document omits. Default: none.
	AdvertisedFeatures *AdvertisedFeatures `json:"smart_configuration,omitempty"`

	// Additional claims of other issuers' tokens and of introspected tokens, for policies. Keys are the gateway's names; values
	// are the issuer's names or paths such as `realm_access.roles`. By default, `groups` is the claim `groups`. At most 20.
	// Default: none.
	TokenClaims map[string]string `json:"token_claims,omitempty"`

	// The request headers to forward; all others are removed. `fhir` includes the headers of FHIR's REST API and of tracing
	// (`Accept`, `If-Match`, `Prefer`, `X-Request-Id`, …). A `*` at the beginning or end matches any text but not the usual
	// identity headers, which require the full name; `*` alone forwards all headers except identity headers. Headers that
	// describe the body, the connection or the request's origin, such as `Content-Type`, are always forwarded. The full name
	// `Authorization` forwards the access token, which any recipient could reuse. Default: `fhir`.
	ForwardHeaders []string `json:"forward_headers,omitempty"`

	// The origins of scripts that may call the API (CORS): `https://app.example.org`, `clients` for the origins of the fhir
	// app's redirect URIs, or `*` for all. fhir_bearer answers preflight requests and replaces the CORS headers of the next
	// handler. All origins may read `{fhir_base}/metadata`. Default: `clients` with the fhir app; without it, CORS is left to
	// other handlers.
	CORS []string `json:"cors,omitempty"`

	// The optional features, by module name. In a Caddyfile, their subdirectives are part of fhir_bearer. Default: none.
	FeaturesRaw caddy.ModuleMap `json:"features,omitempty" caddy:"namespace=fhir.bearer"`

	SignInPolicy

	Enforcement

	option.Source

	gate       *gate
	failures   *fhirerror.Log
	sites      *placement.Sites
	locateOnce sync.Once // guards determining the API's URL
	keys       acquiredKeys
}

// CaddyModule implements [caddy.Module].
func (*Bearer) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.fhir_bearer", New: func() caddy.Module { return new(Bearer) }}
}

// Provision sets up token verification. Keys are fetched on first use.
func (h *Bearer) Provision(ctx caddy.Context) (err error) {
	defer func() { err = h.Wrap(err) }()
	app, err := fhirbase.FindAppOrNil[App](ctx)
	if err != nil {
		return err
	}
	if app == nil && len(h.Trust) == 0 && h.Introspection == nil {
		return fhirbase.ErrNoApp
	}
	at, err := newLocation(ctx, h.FHIRBase, app)
	if err != nil {
		return err
	}
	h.FHIRBase, h.failures = at.path, fhirerror.NewHandlerLog(ctx)
	if err := h.checkOptions(); err != nil {
		return err
	}
	if err := metrics.Register(ctx); err != nil {
		return err
	}
	if h.gate, err = h.newGate(ctx, at, app); err != nil {
		return err
	}
	if h.gate.enforcement != nil {
		activeBearers.Store(h, nil)
	}
	h.sites, err = placement.LoadSites(ctx)
	return err
}

// checkOptions returns an error for options that the Caddyfile parser would reject.
func (h *Bearer) checkOptions() error {
	if err := h.checkACRValues(len(h.Trust) == 0 && h.Introspection == nil); err != nil {
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

// newGate returns a gate for the configured options. app may be nil.
func (h *Bearer) newGate(ctx caddy.Context, at apiLocation, app App) (*gate, error) {
	g := &gate{
		location: at, forwardToken: slices.ContainsFunc(h.ForwardHeaders, isAuthorization), signIn: &h.SignInPolicy,
		headers: guard.NewIdentityHeaders(nil, h.ForwardHeaders),
	}
	g.misplacement.logger, g.misplacement.failures = ctx.Slogger(), h.failures
	log := newAccessLog(ctx, app, h.AuditReads)
	site := h.newSite(ctx, at, app, log.events)
	policies, admissions, err := h.loadExtensions(ctx, app, site)
	if err != nil {
		return nil, err
	}
	g.admissions, g.audit = admissions, site.Audit
	if g.cors, err = newCORSPolicy(h.CORS, app); err != nil {
		return nil, err
	}
	trusted, err := acquireKeys(ctx, h.Trust, &h.keys)
	if err != nil {
		return nil, err
	}
	g.smart, g.resource = newSMARTConfiguration(at, trusted, h.AdvertisedFeatures), newProtectedResource(at, h.Trust, h.Introspection)
	g.setURL(at.url)
	introspectionKeys, err := h.Introspection.acquireKeys(ctx, &h.keys)
	if err != nil {
		return nil, err
	}
	verifiers, err := newGuard(at, app, h.Trust, trusted, h.Introspection, introspectionKeys, h.policyClaims(policies))
	if err != nil {
		return nil, err
	}
	g.authenticator = authenticator{location: at, guard: verifiers, hasPolicies: len(policies) > 0}
	if app != nil {
		g.authenticator.holders = app
	}
	if g.enforcement, err = newEnforcement(ctx, &h.Enforcement, policies, at, app, notifyAdmissions(log.record, admissions)); err != nil {
		return nil, err
	}
	if g.metadata = newMetadata(g.enforcement, at, app, g.cors != nil); g.enforcement != nil {
		g.enforcement.enforcer.Metadata = g.metadata
	}
	return g, nil
}

// Cleanup releases the issuers' keys that Provision acquired.
func (h *Bearer) Cleanup() error {
	activeBearers.Delete(h)
	return h.keys.release()
}

// ServeHTTP implements [caddyhttp.MiddlewareHandler].
func (h *Bearer) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	h.locateOnce.Do(h.determineURL)
	defer slowbody.FHIRPace.Limit(w, r)()
	return fhirerror.HandleError(w, r, h.FHIRBase, h.failures, h.gate.serve(w, r, traceCalls(r, fhirerror.OrNotFound{Next: next}, h.FHIRBase)))
}

// needsSiteURL reports whether links in responses require that the site determines the API's URL.
func (h *Bearer) needsSiteURL() bool { return h.gate.location.url == "" && h.gate.enforcement != nil }

// determineURL determines the API's URL from the site before the first request is handled.
func (h *Bearer) determineURL() {
	if h.needsSiteURL() {
		h.gate.enforcement.enforcer.BaseURL = h.sites.BaseURL(h)
		h.gate.metadata.Changes.BaseURL = h.gate.enforcement.enforcer.BaseURL
		h.gate.setURL(h.gate.enforcement.enforcer.BaseURL)
	}
}

// Placement implements [placement.Handler].
func (h *Bearer) Placement() placement.Placement {
	return placement.Placement{Directive: "fhir_bearer", Source: h.Source.Source, FHIRBase: h.FHIRBase}
}

// CheckWithoutURL implements [placement.Guard].
func (h *Bearer) CheckWithoutURL() error {
	if !h.needsSiteURL() {
		return nil
	}
	return h.Wrap(errNoBaseURL)
}

// CheckApp implements [option.FHIRAppDependent].
func (h *Bearer) CheckApp() error {
	if len(h.Trust) == 0 && h.Introspection == nil {
		return fmt.Errorf("%w; alternatively, configure another issuer with trust or introspect", fhirbase.ErrNoApp)
	}
	for _, t := range h.Trust {
		if t.Audience == "" {
			return fmt.Errorf("trust %s: %w", t.Issuer, errAudienceRequired)
		}
	}
	if i := h.Introspection; i != nil && i.Audience == "" {
		return fmt.Errorf("introspect %s: %w", i.Endpoint, errAudienceRequired)
	}
	return crossorigin.CheckClients(h.CORS)
}

var (
	_ caddy.Provisioner           = (*Bearer)(nil)
	_ caddy.CleanerUpper          = (*Bearer)(nil)
	_ caddyhttp.MiddlewareHandler = (*Bearer)(nil)
	_ caddyfile.Unmarshaler       = (*Bearer)(nil)
	_ option.FHIRAppDependent     = (*Bearer)(nil)
	_ placement.Guard             = (*Bearer)(nil)
)

// UnmarshalCaddyfile parses the directive. Syntax:
//
//	fhir_bearer [<matcher>] {
//		fhir_base <path|url>
//		trust <issuer> [<audience>] { … }
//		introspect <url> { … }
//		smart_configuration { … }
//		forward_header <names...>
//		cors <origin|clients|*...>
//		acr <class...>
//		max_age <duration>
//		scopes off
//		compartment_search
//		shared <type...> <rule>
//		operation <$name> off|token|patient|instance|whole [<permissions>] [<type...>]
//		search_parameters <files...>
//		expand_scope <scope...>
//		upsert
//		token_claim <name> [<theirs>]
//		max_memory <size>
//		seal_key <secret> [<previous...>]
//		audit_reads
//	}
//
// Features add subdirectives.
func (h *Bearer) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	options := option.Block{
		"fhir_base":           option.Word(&h.FHIRBase, fhirbase.CheckBaseOrURL),
		"trust":               parseTrust(&h.Trust),
		"introspect":          parseIntrospect(&h.Introspection),
		"token_claim":         option.ClaimNames(&h.TokenClaims, tokenclaim.CheckAll),
		"smart_configuration": parseAdvertised(&h.AdvertisedFeatures),
		"forward_header":      option.Words(&h.ForwardHeaders, guard.CheckHeaderPattern),
		"cors":                option.Words(&h.CORS, crossorigin.CheckWord),
		"acr":                 option.Words(&h.ACR, checkACR),
		"max_age":             option.Duration(&h.MaxAge),
	}
	maps.Copy(options, h.Enforcement.subdirectives())
	features := options.Features("fhir.bearer")
	err := option.ParseDirective(d, options, features.Repeatable("trust", "shared", "operation", "token_claim")...)
	h.FeaturesRaw = features.Raw()
	return err
}

// App is the part of the fhir app's interface that fhir_bearer needs.
type App interface {
	fhirbase.Addresser

	// Holder returns the holder of an access token, or nil if the token's grant has been revoked or has expired.
	Holder(ctx context.Context, t tokenclaim.AccessToken) (*tokenclaim.Holder, error)

	// IsRevoked reports whether the access token with the given ID (jti) has been revoked.
	IsRevoked(ctx context.Context, tokenID string) (bool, error)

	// Person returns a person's account at their identity provider, or the zero value for users in the configuration.
	Person(ctx context.Context, sub string) audit.Person

	// TokenClaims returns the names of the stored claims by the identity provider that issues them.
	TokenClaims() map[string][]string

	// AllowsOrigin reports whether the origin is that of a client's redirect URI.
	AllowsOrigin(origin string) bool

	// Keys returns the keys that sign tokens and seal links.
	Keys() *keyring.Keyring

	// Stores returns the stores. Page states that are too long for a link are stored in the same store as authorization codes.
	Stores() *stores.Set

	// AuditLog returns the audit log.
	AuditLog() *audit.Log

	// Features returns the features of the app. Each [AdmissionFeature] and [PolicyFeature] extends every fhir_bearer.
	Features() []any

	// Audit records an event in the audit log and counts it.
	Audit(ctx context.Context, e audit.Event)

	// OAuthURIs returns the endpoint URLs for the CapabilityStatement.
	OAuthURIs() smart.OAuthURIs
}

// newCORSPolicy returns the CORS policy. By default, with the app, it allows the origins of the app's clients.
func newCORSPolicy(words []string, app App) (*crossorigin.Policy, error) {
	if app != nil && len(words) == 0 {
		words = []string{crossorigin.KeywordClients}
	}
	return crossorigin.New(words, app)
}

// apiLocation contains the location of the FHIR API.
type apiLocation struct {
	path     string // path of the API
	url      string // URL of the API; "" if the site determines it
	issuer   string // issuer of the fhir app; "" without the app
	resource string // URL of the API's metadata (RFC 9728); "" if it is not published
}

// newLocation returns the configured location of a fhir_bearer or, by default, the app's. app may be nil.
func newLocation(ctx caddy.Context, configured string, app App) (a apiLocation, err error) {
	origin, path, err := fhirbase.SplitBase(configured)
	if err != nil {
		return a, err
	}
	if a.path, err = fhirbase.ResolveBase(ctx, path); err != nil {
		return a, err
	}
	switch {
	case app != nil && origin != "":
		return a, errTwoOrigins
	case app != nil:
		issuer, base := app.Address()
		a.issuer, a.url, a.resource = issuer, issuer+base, issuer+oauth2.ProtectedResourcePath+base
	case origin != "":
		a.url = origin + a.path
	}
	return a, nil
}

// audience returns the value that a token's aud must contain: the configured value or, by default, the app's FHIR base URL.
func (a apiLocation) audience(configured string) (string, error) {
	switch {
	case configured != "":
		return configured, nil
	case a.issuer == "" || a.url == "":
		return "", errAudienceRequired
	}
	return a.url, nil
}

// challenge returns the challenge for rejected requests.
func (a apiLocation) challenge() challenge {
	if a.issuer == "" {
		return challenge{a.path, a.resource}
	}
	return challenge{a.url, a.resource}
}

// isLocalToken reports whether the fhir app issued the token.
func (a apiLocation) isLocalToken(t *guard.Token) bool { return a.issuer != "" && t.Issuer == a.issuer }

var (
	errNoBaseURL  = errors.New("fhir_bearer cannot derive the URL of the FHIR API, which links need, from its site address: set fhir_base https://<host>/<path>")
	errTwoOrigins = errors.New("fhir_base must be a path if the global option fhir is set: its issuer determines the host")
)
