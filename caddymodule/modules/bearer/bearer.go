package bearer

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/browser"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/capability"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/crossorigin"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/failure"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fhirapp"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/metrics"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/pace"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/requester"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/site"
)

func init() {
	caddy.RegisterModule(new(Bearer))
	option.RegisterHandler("fhir_bearer", httpcaddyfile.Before, "request_header", func() option.Handler { return new(Bearer) })
}

// Bearer lets requests pass that carry a valid access token of the fhir app's issuer or of a trusted one (RFC 6750,
// RFC 9068), as far as its SMART scopes allow them, and of each answer what they cover. It sets the placeholders `{http.auth.user.id}`, `{http.auth.user.client_id}`,
// `scope`, `patient`, `fhir_user` and `issuer`; only `id` and `issuer` together identify a user. Headers in which a
// client could claim another identity are removed.
//
// `GET {fhir_base}/metadata` needs no token, because apps read there how to get one. Without the fhir app, neither
// does `{fhir_base}/.well-known/smart-configuration`, which names the endpoints of the first trusted issuer.
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

	// The headers that are passed on; all others are removed. `fhir` stands for those of FHIR's REST API and of
	// tracing (`Accept`, `If-Match`, `Prefer`, `X-Request-Id`, …). A `*` at the beginning or end matches any rest,
	// except for the usual identity headers, which must be named in full. Headers that describe the body or
	// connection, such as `Content-Type`, or the request's origin are always passed on. `*` stands for all but identity
	// headers. Default: `fhir`.
	ForwardHeaders []string `json:"forward_headers,omitempty"`

	// Leave the access token on the request. Default: the `Authorization` header is removed, because whoever reads the
	// token could use it again.
	ForwardToken bool `json:"forward_token,omitempty"`

	// The origins whose scripts may call the API (CORS): `https://app.example.org`, `clients` for those of the fhir
	// app's redirect URIs, `*` for all. Preflights are answered here, and CORS headers of the next handler are
	// replaced. `{fhir_base}/metadata` is open to all. Default: `clients` with the fhir app; without it, CORS is left
	// to other handlers.
	CORS []string `json:"cors,omitempty"`

	SignInPolicy

	Enforcement

	option.Source

	app      App    // nil without the fhir app
	issuer   string // the app's
	apiURL   string // the FHIR base URL, by the app
	origin   string // of the API; empty if the fhir app or the site tells it
	sites    *site.Sites
	located  sync.Once           // the site was asked
	smart    *smartConfiguration // nil with the app, and without trusted issuers
	cors     *crossorigin.Rules
	headers  *guard.IdentityHeaders
	guard    *guard.Guard
	realm    string
	resource string               // the address of the API's metadata (RFC 9728); empty without the app
	enforced *enforcement         // nil with scopes off
	metadata *capability.Metadata // nil with scopes off
	pooled   []string             // the entries of issuerKeys that are held

	logger    *slog.Logger
	failures  *failure.Log
	elsewhere sync.Once // a request outside the FHIR base was refused
}

// CaddyModule returns the Caddy module information.
func (*Bearer) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.fhir_bearer", New: func() caddy.Module { return new(Bearer) }}
}

// Provision sets up verification. Keys are fetched on first use.
func (h *Bearer) Provision(ctx caddy.Context) (err error) {
	defer func() { err = h.Wrap(err) }()
	if h.app, err = fhirapp.FindAny[App](ctx); err != nil {
		return err
	}
	if h.app == nil && len(h.Trust) == 0 && h.Introspection == nil {
		return fhirapp.ErrNone
	}
	if h.origin, h.FHIRBase, err = apiAddress(ctx, h.FHIRBase, h.app != nil); err != nil {
		return err
	}
	if h.realm = h.FHIRBase; h.app != nil {
		issuer, base := h.app.Address()
		h.issuer, h.apiURL = issuer, issuer+base
		h.realm, h.resource = h.apiURL, issuer+endpoint.ProtectedResource+base
	}
	if err := h.checkClasses(len(h.Trust) == 0 && h.Introspection == nil); err != nil {
		return err
	}
	h.logger = ctx.Slogger()
	h.failures = failure.NewLog(h.logger)
	for _, name := range h.ForwardHeaders {
		if err := guard.CheckHeaderPattern(name); err != nil {
			return err
		}
	}
	h.headers = guard.NewIdentityHeaders([]string{decisionHeader}, h.ForwardHeaders)
	if h.cors, err = newCORS(h.CORS, h.app); err != nil {
		return err
	}
	if err := metrics.Register(ctx); err != nil {
		return err
	}
	if h.guard, err = h.newGuard(ctx); err != nil {
		return err
	}
	if h.enforced, err = h.newEnforcement(ctx); err != nil {
		return err
	}
	if h.metadata = h.newMetadata(); h.enforced != nil {
		h.enforced.Metadata = h.metadata
	}
	h.sites, err = site.Checks(ctx)
	return err
}

// ServeHTTP implements caddyhttp.MiddlewareHandler.
func (h *Bearer) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	h.located.Do(h.locate)
	defer pace.FHIR.Limit(w, r)()
	return failure.Answer(w, r, h.FHIRBase, h.failures, h.serve(w, r, failure.OrNotFound{Next: next}))
}

func (h *Bearer) serve(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	if h.smart.serves(r) {
		decided(decisionPublic)
		return h.smart.serve(w, r)
	}
	w, answered := h.cors.Answer(w, r, r.URL.Path == h.FHIRBase+"/metadata")
	if answered {
		decided(decisionPreflight)
		return nil
	}
	if err := errors.Join(guard.CheckPath(r, h.FHIRBase), h.headers.Check(r)); err != nil {
		new(identity).set(r)
		return h.refuse(w, err)
	}
	h.headers.Strip(r.Header, requester.ByTrustedProxy(r))
	guard.StripCookies(r.Header, browser.CookiePrefix)
	guard.StripTrailers(r)
	token, err := h.authenticate(r)
	if err != nil {
		h.warnElsewhere(r, err)
		recordOutage(r, h.app, err)
		return h.refuse(w, err)
	}
	public := isPublic(r, h.FHIRBase)
	guard.StripUpgrade(r.Header, !public)
	if !h.ForwardToken {
		r.Header.Del("Authorization")
	}
	if public {
		return h.servePublic(w, r, next)
	}
	return h.serveAllowed(w, r, next, token)
}

// servePublic answers what needs no token.
func (h *Bearer) servePublic(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	decided(decisionPublic)
	guard.StripBody(r)
	guard.StripCredentials(r.Header)
	if h.metadata == nil {
		return next.ServeHTTP(w, r)
	}
	return h.refuse(w, h.metadata.ServeHTTP(w, r, next))
}

// serveAllowed answers a valid token's request, as far as its scopes allow.
func (h *Bearer) serveAllowed(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler, token *guard.Token) error {
	if err := h.checkSignIn(r, token, h.isOwn(token)); err != nil {
		return h.refuse(w, err)
	}
	if h.enforced == nil {
		decided(decisionAllowed)
		return next.ServeHTTP(w, r)
	}
	err := h.enforced.serve(w, r, next, token)
	if _, refused := errors.AsType[*guard.Error](err); refused {
		return h.refuse(w, err)
	}
	decided(decisionAllowed)
	return err
}

// warnElsewhere logs once that a request without a token was for a path outside the FHIR base. If the base is wrong,
// every request is refused, and nothing else would say why.
func (h *Bearer) warnElsewhere(r *http.Request, err error) {
	if !errors.Is(err, guard.ErrNoToken) || fhirapp.Below(r.URL.Path, h.FHIRBase) {
		return
	}
	message := "fhir_bearer guards more than the FHIR API: if the API is at this path, say so with fhir_base"
	if fhirapp.Below(fhirapp.OriginalPath(r), h.FHIRBase) {
		message = "the path is rewritten before fhir_bearer, and is no longer below the FHIR base: put what rewrites it after fhir_bearer"
	}
	h.elsewhere.Do(func() {
		h.logger.Warn(message, "path", r.URL.Path, "fhir_base", h.FHIRBase)
	})
}

// CheckApp implements [option.AppUser].
func (h *Bearer) CheckApp() error {
	if len(h.Trust) == 0 && h.Introspection == nil {
		return fmt.Errorf("%w; or name another issuer with trust or introspect", fhirapp.ErrNone)
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
)
