package bearer

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/browser"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/capability"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/crossorigin"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fhirbase"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fhirerror"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/requester"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/span"
)

// gate is what a request passes.
type gate struct {
	at           address
	smart        *smartConfiguration // may be nil
	resource     *protectedResource  // may be nil
	cors         *crossorigin.Policy // nil leaves CORS to the next handler
	headers      *guard.IdentityHeaders
	forwardToken bool
	asks         authenticator
	signIn       *SignInPolicy
	enforced     *enforcement         // nil with scopes off
	metadata     *capability.Metadata // nil with scopes off
	misplaced    misplacement
	admissions   []Admission
	audit        func(context.Context, audit.Event) // may be nil
}

func (g *gate) serve(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	if g.smart.serves(r) {
		decided(decisionPublic)
		return g.smart.serve(w, r)
	}
	if g.resource.serves(r) {
		decided(decisionPublic)
		return g.resource.serve(w, r)
	}
	w, answered := g.corsOf(r).Answer(w, r)
	if answered {
		decided(decisionPreflight)
		return nil
	}
	if err := g.enter(w, r); err != nil {
		new(identity).set(r)
		return g.at.challenge().refuse(w, err)
	}
	g.headers.Strip(r.Header, requester.ByTrustedProxy(r))
	guard.StripCookies(r.Header, browser.CookiePrefix)
	guard.StripTrailers(r)
	token, err := verified(&g.asks, r)
	if err != nil {
		g.misplaced.warn(r, g.at.path, err)
		g.misplaced.warnOfClaim(err)
		recordOutage(r, g.audit, err)
		return g.at.challenge().refuse(w, err)
	}
	public := isPublic(r, g.at.path)
	guard.StripUpgrade(r.Header, !public)
	if !g.forwardToken {
		r.Header.Del("Authorization")
	}
	if public {
		return g.servePublic(w, r, next)
	}
	return g.serveAllowed(w, r, next, token)
}

// corsOf returns the CORS policy of a request. Apps learn from metadata how to get a token, so it is public.
func (g *gate) corsOf(r *http.Request) *crossorigin.Policy {
	if g.cors != nil && r.URL.Path == g.at.path+"/metadata" {
		return crossorigin.Public
	}
	return g.cors
}

// enter refuses what is refused whoever sends it.
func (g *gate) enter(w http.ResponseWriter, r *http.Request) error {
	for _, a := range g.admissions {
		if err := a.AdmitAny(w, r); err != nil {
			decided(decisionThrottled)
			return err
		}
	}
	return errors.Join(guard.CheckPath(r, g.at.path), g.headers.Check(r))
}

// servePublic answers what needs no token.
func (g *gate) servePublic(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	decided(decisionPublic)
	guard.StripBody(r)
	guard.StripCredentials(r.Header)
	if g.metadata == nil {
		return next.ServeHTTP(w, r)
	}
	return g.at.challenge().refuse(w, g.metadata.ServeHTTP(w, r, next))
}

// serveAllowed answers a valid token's request, as far as its scopes allow.
func (g *gate) serveAllowed(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler, token *guard.Token) error {
	if err := g.signIn.check(r, token, g.at.isOwn(token)); err != nil {
		return g.at.challenge().refuse(w, err)
	}
	for _, a := range g.admissions {
		if err := a.Admit(w, r, token); err != nil {
			decided(decisionThrottled)
			return err
		}
	}
	if g.enforced == nil {
		decided(decisionAllowed)
		return next.ServeHTTP(w, r)
	}
	inside, s := span.Request(r, span.Decide)
	defer s.End()
	err := g.enforced.serve(w, inside, next, token)
	if _, refused := errors.AsType[*guard.Error](err); refused {
		return g.at.challenge().refuse(w, err)
	}
	decided(decisionAllowed)
	return err
}

// misplacement warns of a fhir_bearer in the wrong place, and of tokens that are for another.
type misplacement struct {
	logger   *slog.Logger
	failures *fhirerror.Log
	once     sync.Once // a request outside the FHIR base was refused
}

// warn logs once that a request without a token was for a path outside the FHIR base. If the base is wrong, every request
// is refused, and nothing else would say why.
func (m *misplacement) warn(r *http.Request, base string, err error) {
	if !errors.Is(err, guard.ErrNoToken) || fhirbase.Below(r.URL.Path, base) {
		return
	}
	message := "fhir_bearer guards more than the FHIR API: if the API is at this path, say so with fhir_base"
	if fhirbase.Below(fhirbase.OriginalPath(r), base) {
		message = "the path is rewritten before fhir_bearer, and is no longer below the FHIR base: put what rewrites it after fhir_bearer"
	}
	m.once.Do(func() { m.logger.Warn(message, "path", r.URL.Path, "fhir_base", base) })
}

// warnOfClaim logs which claim of a token was rejected: the operator who configured its issuer reads the log, and the
// client gets only a 401.
func (m *misplacement) warnOfClaim(err error) {
	if c, ok := errors.AsType[*guard.ClaimError](err); ok {
		m.failures.Warn("token "+c.Claim, "access token rejected: claim not accepted",
			"issuer", c.Issuer, "claim", c.Claim, "found", c.Found, "expected", c.Expected, "error", c.Err)
	}
}
