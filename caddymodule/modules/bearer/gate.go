package bearer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/browser"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/capability"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/enforce"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/crossorigin"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fhirbase"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fhirerror"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/metrics"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/requester"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/span"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// gate performs the steps of handling a request.
type gate struct {
	location      apiLocation
	smart         *smartConfiguration // may be nil
	resource      *protectedResource  // may be nil
	cors          *crossorigin.Policy // nil means that CORS is left to the next handler
	headers       *guard.IdentityHeaders
	forwardToken  bool
	authenticator authenticator
	signIn        *SignInPolicy
	enforcement   *scopeEnforcer       // nil if scopes are off
	metadata      *capability.Metadata // nil if scopes are off
	misplacement  misplacement
	admissions    []Admission
	audit         func(context.Context, audit.Event) // may be nil
}

func (g *gate) serve(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	if g.smart.matches(r) {
		countDecision(decisionPublic)
		return g.smart.serve(w, r)
	}
	if g.resource.matches(r) {
		countDecision(decisionPublic)
		return g.resource.serve(w, r)
	}
	w, isPreflight := g.corsPolicy(r).HandlePreflight(w, r)
	if isPreflight {
		countDecision(decisionPreflight)
		return nil
	}
	if err := g.checkRequest(w, r); err != nil {
		new(identity).register(r)
		return g.location.challenge().reject(w, err)
	}
	g.headers.Strip(r.Header, requester.IsFromTrustedProxy(r))
	guard.StripCookies(r.Header, browser.CookiePrefix)
	guard.StripTrailers(r)
	token, err := verifyInSpan(&g.authenticator, r)
	if err != nil {
		g.misplacement.warn(r, g.location.path, err)
		g.misplacement.warnRejectedClaim(err)
		recordOutage(r, g.audit, err)
		return g.location.challenge().reject(w, err)
	}
	public := isPublicRequest(r, g.location.path)
	guard.StripUpgrade(r.Header, !public)
	if !g.forwardToken {
		r.Header.Del("Authorization")
	}
	if public {
		return g.servePublic(w, r, next)
	}
	return g.serveAuthorized(w, r, next, token)
}

// corsPolicy returns the CORS policy for a request. Metadata is public, because it contains the OAuth endpoints for apps.
func (g *gate) corsPolicy(r *http.Request) *crossorigin.Policy {
	if g.cors != nil && r.URL.Path == g.location.path+"/metadata" {
		return crossorigin.Public
	}
	return g.cors
}

// checkRequest returns an error for requests that must be rejected regardless of their token.
func (g *gate) checkRequest(w http.ResponseWriter, r *http.Request) error {
	for _, a := range g.admissions {
		if err := a.AdmitUnverified(w, r); err != nil {
			countDecision(decisionThrottled)
			return err
		}
	}
	return errors.Join(guard.CheckPath(r, g.location.path), g.headers.Check(r))
}

// servePublic handles a request that does not require a token.
func (g *gate) servePublic(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	countDecision(decisionPublic)
	guard.StripBody(r)
	guard.StripCredentials(r.Header)
	if g.metadata == nil {
		return next.ServeHTTP(w, r)
	}
	return g.location.challenge().reject(w, g.metadata.ServeHTTP(w, r, next))
}

// serveAuthorized handles a request with a valid token within the token's scopes.
func (g *gate) serveAuthorized(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler, token *guard.Token) error {
	if err := g.signIn.check(r, token, g.location.isLocalToken(token)); err != nil {
		return g.location.challenge().reject(w, err)
	}
	for _, a := range g.admissions {
		if err := a.Admit(w, r, token); err != nil {
			countDecision(decisionThrottled)
			return err
		}
	}
	if g.enforcement == nil {
		countDecision(decisionAllowed)
		return next.ServeHTTP(w, r)
	}
	spanRequest, s := span.Request(r, span.Decide)
	defer s.End()
	err := g.enforcement.serve(w, spanRequest, next, token)
	if _, isRejection := errors.AsType[*guard.Error](err); isRejection {
		return g.location.challenge().reject(w, err)
	}
	countDecision(decisionAllowed)
	return err
}

// misplacement logs warnings about a misplaced fhir_bearer and about tokens for another audience or issuer.
type misplacement struct {
	logger   *slog.Logger
	failures *fhirerror.Log
	warnOnce sync.Once // for the first rejected request with a path that is not below the FHIR base
}

// warn logs once that a request without a token had a path that is not below the FHIR base. If the base is wrong, every request
// is rejected, and no other message contains the cause.
func (m *misplacement) warn(r *http.Request, base string, err error) {
	if !errors.Is(err, guard.ErrNoToken) || fhirbase.IsBelow(r.URL.Path, base) {
		return
	}
	message := "request path is outside of the FHIR base; if the API is at this path, set fhir_base"
	if fhirbase.IsBelow(fhirbase.OriginalPath(r), base) {
		message = "path rewritten before fhir_bearer is outside of the FHIR base; put the rewrite after fhir_bearer"
	}
	m.warnOnce.Do(func() { m.logger.Warn(message, "path", r.URL.Path, "fhir_base", base) })
}

// warnRejectedClaim logs why a token's claim was rejected, for the operator who configured the issuer. The client gets a 401.
func (m *misplacement) warnRejectedClaim(err error) {
	if c, ok := errors.AsType[*guard.ClaimError](err); ok {
		m.failures.Warn("token "+c.Claim, "access token rejected: claim not accepted",
			"issuer", c.Issuer, "claim", c.Claim, "found", c.Found, "expected", c.Expected, "error", c.Err)
	}
}

// Decision is the outcome of a request in fhir_bearer.
type Decision string

const (
	decisionAllowed     Decision = "allowed"
	decisionPublic      Decision = "public"    // the request does not require a token
	decisionPreflight   Decision = "preflight" // fhir_bearer handled the preflight request
	decisionBadRequest  Decision = "bad_request"
	decisionNoToken     Decision = "no_token"
	decisionInvalid     Decision = "invalid_token"
	decisionExpired     Decision = "expired_token"
	decisionStepUp      Decision = "step_up" // the client must have the user sign in again
	decisionForbidden   Decision = "forbidden"
	decisionThrottled   Decision = "throttled" // an [Admission] rejected the request
	decisionUnavailable Decision = "unavailable"
)

// Decisions lists all outcomes, for the metrics.
var Decisions = []Decision{
	decisionAllowed, decisionPublic, decisionPreflight, decisionBadRequest, decisionNoToken, decisionInvalid, decisionExpired,
	decisionStepUp, decisionForbidden, decisionThrottled, decisionUnavailable,
}

var (
	bearerDecisions = metrics.NewCounters("bearer_decisions_total", "Requests handled by fhir_bearer, by decision.", "outcome")
	decisionCounts  = metrics.LookUpByLabel(Decisions, func(d Decision) prometheus.Counter { return bearerDecisions.WithLabelValues(string(d)) })
)

func countDecision(d Decision) { decisionCounts[d].Inc() }

func decisionFor(err *guard.Error) Decision {
	switch {
	case err.Status == http.StatusServiceUnavailable:
		return decisionUnavailable
	case err.Status == http.StatusForbidden, err.Status == http.StatusNotFound:
		return decisionForbidden
	case err.Status != http.StatusUnauthorized:
		return decisionBadRequest
	case errors.Is(err, guard.ErrNoToken):
		return decisionNoToken
	case errors.Is(err, guard.ErrExpired):
		return decisionExpired
	case errors.Is(err, guard.ErrStepUp):
		return decisionStepUp
	}
	return decisionInvalid
}

// isPublicRequest reports whether a request does not require a token. This applies only to the capabilities interaction (FHIR
// R4 §3.1.0.13; SMART App Launch 2.2) with exactly its method, path and parameters, because servers may interpret other
// requests differently.
func isPublicRequest(r *http.Request, fhirBase string) bool {
	if r.URL.Path != fhirBase+"/metadata" || r.Method != http.MethodGet && r.Method != http.MethodHead {
		return false
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	for name, values := range query {
		if len(values) > 1 || !slices.Contains(capabilityParameters, name) {
			return false
		}
	}
	return err == nil
}

// capabilityParameters are the parameters of the capabilities interaction (FHIR R4 §3.1.0.13, §3.1.0.1.10).
var capabilityParameters = []string{"mode", "_format", "_pretty", "_summary", "_elements"}

// challenge contains the parameters of a WWW-Authenticate challenge.
type challenge struct {
	realm    string
	resource string // URL of the API's metadata (RFC 9728); "" if it is not published
}

// reject counts a rejection and sets the challenge in such a way that handle_errors preserves it.
func (c challenge) reject(w http.ResponseWriter, err error) error {
	rejection, ok := errors.AsType[*guard.Error](err)
	if !ok {
		return err
	}
	countDecision(decisionFor(rejection))
	if challenge := rejection.Challenge(c.realm); challenge != "" {
		if c.resource != "" {
			challenge += fmt.Sprintf(", resource_metadata=%q", c.resource) // see RFC 9728 §5.1
		}
		w.Header().Set("WWW-Authenticate", challenge)
	}
	if allow := rejection.Allow(); allow != "" {
		w.Header().Set("Allow", allow)
	}
	if after := rejection.RetryAfter(); after != "" {
		w.Header().Set("Retry-After", after)
	} else if errors.Is(err, store.ErrUnavailable) {
		oauth2.SetRetryAfter(w.Header(), rejection.Status)
	}
	return caddyhttp.Error(rejection.Status, err)
}

// accessLog records decisions about requests in the audit log.
type accessLog struct {
	events *audit.Log
	reads  bool // whether permitted reads and searches are recorded too
	app    App  // looks up the persons of tokens that the app issued; may be nil
}

// newAccessLog returns an accessLog that writes to the audit log of the app, which may be nil.
func newAccessLog(ctx caddy.Context, app App, auditReads bool) accessLog {
	if app != nil {
		return accessLog{app.AuditLog(), auditReads, app}
	}
	return accessLog{audit.NewLog(fhirbase.NewLogger(ctx, fhirbase.AuditLogger)), auditReads, nil}
}

// record records a decision. Permitted reads and searches are recorded only if this is configured, because there is one per
// request.
func (l accessLog) record(r *http.Request, b enforce.Bearer, d enforce.Decision) {
	if !d.IsRejected() && !d.ChangesData && !l.reads {
		return
	}
	l.events.Record(r.Context(), audit.Event{
		Kind: audit.KindAccess, User: b.Token.Subject, ClientID: b.Token.ClientID, Scope: d.Scope(), Address: requester.Address(r),
		Interaction: interactionName(d.Interaction), Err: auditError(d.Err),
		Person: l.findPerson(r, b.Token),
	})
}

// findPerson returns the person's account at their identity provider if the fhir app issued the token.
func (l accessLog) findPerson(r *http.Request, t *guard.Token) (zero audit.Person) {
	if l.app == nil || t.Provider == "" {
		return zero
	}
	return l.app.Person(r.Context(), t.Subject)
}

// recordOutage records in the audit log that a token could not be verified because the store is unavailable. recordEvent may be
// nil.
func recordOutage(r *http.Request, recordEvent func(context.Context, audit.Event), err error) {
	if recordEvent != nil && errors.Is(err, store.ErrUnavailable) {
		recordEvent(r.Context(), audit.Event{Kind: audit.KindAccess, Address: requester.Address(r), Err: err, Anonymous: true})
	}
}

// interactionName returns the name of an interaction and its resource, for the audit log.
func interactionName(i interaction.Interaction) string {
	parts := []string{i.Kind.String()}
	switch {
	case i.Compartment.ID != "":
		parts = append(parts, i.Compartment.String()+"/"+i.Type)
	case i.ID != "":
		parts = append(parts, i.Type+"/"+i.ID)
	case i.Type != "":
		parts = append(parts, i.Type)
	}
	if i.Operation != "" {
		parts = append(parts, i.Operation)
	}
	return strings.Join(parts, " ")
}

// auditError returns an error with the code that represents its outcome in the audit log.
func auditError(err error) error {
	rejection, ok := errors.AsType[*guard.Error](err)
	if !ok || rejection.Status >= http.StatusInternalServerError {
		return err
	}
	code := rejection.Code
	switch {
	case rejection.Status == http.StatusNotFound:
		code = "not_found"
	case code == "":
		code = "invalid_request"
	}
	return &oauth2.Error{Code: code, Description: rejection.Description, Err: rejection.Err}
}

// spanOutcome returns the outcome in spans for an error.
func spanOutcome(err error) string {
	rejection, ok := errors.AsType[*guard.Error](err)
	switch {
	case err == nil:
		return string(decisionAllowed)
	case ok:
		return string(decisionFor(rejection))
	}
	return "failed"
}

// verifyInSpan authenticates a request and records this as a separate span.
func verifyInSpan(by *authenticator, r *http.Request) (*guard.Token, error) {
	spanRequest, s := span.Request(r, span.Verify)
	defer s.End()
	token, err := by.authenticate(spanRequest)
	s.Outcome(spanOutcome(err))
	return token, err
}

// startInspectSpan starts a span for a call and the inspection of its response.
func startInspectSpan(ctx context.Context, i interaction.Interaction) (context.Context, func(error)) {
	ctx, s := span.Start(ctx, span.Inspect)
	if s == (span.Span{}) {
		return ctx, func(error) {}
	}
	s.Interaction(i)
	return ctx, func(err error) {
		s.Outcome(spanOutcome(err))
		s.End()
	}
}

// recordSpanOutcome returns a function that records a decision and sets the outcome in the span of the request. For a batch,
// the last decision is the one for the entire batch.
func recordSpanOutcome(record func(*http.Request, enforce.Bearer, enforce.Decision)) func(*http.Request, enforce.Bearer, enforce.Decision) {
	return func(r *http.Request, b enforce.Bearer, d enforce.Decision) {
		s := span.Current(r.Context())
		s.Interaction(d.Interaction)
		s.Outcome(spanOutcome(d.Err))
		record(r, b, d)
	}
}

// traceCalls returns the next handler wrapped so that each call has a span, if spans are recorded.
func traceCalls(r *http.Request, next caddyhttp.Handler, base string) caddyhttp.Handler {
	if !span.IsRecording(r.Context()) {
		return next
	}
	return tracedHandler{next, base}
}

// tracedHandler starts a span for each call to the next handler.
type tracedHandler struct {
	next caddyhttp.Handler
	base string
}

// ServeHTTP implements [caddyhttp.Handler].
func (a tracedHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) error {
	r, s := span.Request(r, span.Forward)
	defer s.End()
	if i, err := interaction.Parse(r.Method, strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, a.base), "/"), r.URL.RawQuery, nil); err == nil {
		s.Interaction(i)
	}
	s.Outcome("failed") // in case the handler aborts
	recorder := &statusWriter{ResponseWriter: w, status: http.StatusOK}
	err := a.next.ServeHTTP(recorder, r)
	if handlerErr, ok := errors.AsType[caddyhttp.HandlerError](err); ok {
		recorder.status = handlerErr.StatusCode
	} else if err != nil {
		return err
	}
	switch {
	case recorder.status < http.StatusBadRequest:
		s.Outcome("answered")
	case recorder.status < http.StatusInternalServerError:
		s.Outcome("refused")
	}
	return err
}

// statusWriter records the status of a response.
type statusWriter struct {
	http.ResponseWriter
	status int
}

// WriteHeader implements [http.ResponseWriter].
func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap lets [http.ResponseController] access other methods of the underlying writer.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
