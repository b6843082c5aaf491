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

// gate contains the steps that a request passes.
type gate struct {
	at           address
	smart        *smartConfiguration // may be nil
	resource     *protectedResource  // may be nil
	cors         *crossorigin.Policy // nil: CORS is left to the next handler
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

// corsOf returns the CORS policy of a request. Metadata is public, because apps read the OAuth endpoints in it.
func (g *gate) corsOf(r *http.Request) *crossorigin.Policy {
	if g.cors != nil && r.URL.Path == g.at.path+"/metadata" {
		return crossorigin.Public
	}
	return g.cors
}

// enter rejects requests regardless of their token.
func (g *gate) enter(w http.ResponseWriter, r *http.Request) error {
	for _, a := range g.admissions {
		if err := a.AdmitAny(w, r); err != nil {
			decided(decisionThrottled)
			return err
		}
	}
	return errors.Join(guard.CheckPath(r, g.at.path), g.headers.Check(r))
}

// servePublic answers a request that needs no token.
func (g *gate) servePublic(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	decided(decisionPublic)
	guard.StripBody(r)
	guard.StripCredentials(r.Header)
	if g.metadata == nil {
		return next.ServeHTTP(w, r)
	}
	return g.at.challenge().refuse(w, g.metadata.ServeHTTP(w, r, next))
}

// serveAllowed answers a request with a valid token within the token's scopes.
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

// misplacement warns of a misplaced fhir_bearer, and of tokens for another audience or issuer.
type misplacement struct {
	logger   *slog.Logger
	failures *fhirerror.Log
	once     sync.Once // for the first rejected request outside of the FHIR base
}

// warn logs once that a request without a token was for a path outside of the FHIR base. If the base is wrong, every request is
// rejected, and no other message gives the cause.
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

// warnOfClaim logs the rejected claim of a token, for the operator who configured its issuer. The client only gets a 401.
func (m *misplacement) warnOfClaim(err error) {
	if c, ok := errors.AsType[*guard.ClaimError](err); ok {
		m.failures.Warn("token "+c.Claim, "access token rejected: claim not accepted",
			"issuer", c.Issuer, "claim", c.Claim, "found", c.Found, "expected", c.Expected, "error", c.Err)
	}
}

// Decision is the outcome of a request at fhir_bearer.
type Decision string

const (
	decisionAllowed     Decision = "allowed"
	decisionPublic      Decision = "public"    // needs no token
	decisionPreflight   Decision = "preflight" // answered by fhir_bearer
	decisionBadRequest  Decision = "bad_request"
	decisionNoToken     Decision = "no_token"
	decisionInvalid     Decision = "invalid_token"
	decisionExpired     Decision = "expired_token"
	decisionStepUp      Decision = "step_up" // requires another sign-in
	decisionForbidden   Decision = "forbidden"
	decisionThrottled   Decision = "throttled" // rejected by an [Admission]
	decisionUnavailable Decision = "unavailable"
)

// Decisions are all outcomes in the metrics.
var Decisions = []Decision{
	decisionAllowed, decisionPublic, decisionPreflight, decisionBadRequest, decisionNoToken, decisionInvalid, decisionExpired,
	decisionStepUp, decisionForbidden, decisionThrottled, decisionUnavailable,
}

var (
	bearerDecisions = metrics.NewCounters("bearer_decisions_total", "Requests that fhir_bearer decided about.", "outcome")
	decisionCounts  = metrics.ByLabel(Decisions, func(d Decision) prometheus.Counter { return bearerDecisions.WithLabelValues(string(d)) })
)

func decided(d Decision) { decisionCounts[d].Inc() }

func refusal(err *guard.Error) Decision {
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

// isPublic reports whether a request needs no token. This holds only for the capabilities interaction (FHIR R4 §3.1.0.13; SMART
// App Launch 2.2), with exactly its method, path and parameters, since servers may interpret others.
func isPublic(r *http.Request, fhirBase string) bool {
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
	resource string // URL of the API's metadata (RFC 9728); empty without metadata
}

// refuse counts a rejection, and sets the challenge, which survives into handle_errors.
func (c challenge) refuse(w http.ResponseWriter, err error) error {
	refused, ok := errors.AsType[*guard.Error](err)
	if !ok {
		return err
	}
	decided(refusal(refused))
	if challenge := refused.Challenge(c.realm); challenge != "" {
		if c.resource != "" {
			challenge += fmt.Sprintf(", resource_metadata=%q", c.resource) // RFC 9728 §5.1
		}
		w.Header().Set("WWW-Authenticate", challenge)
	}
	if allow := refused.Allow(); allow != "" {
		w.Header().Set("Allow", allow)
	}
	if after := refused.RetryAfter(); after != "" {
		w.Header().Set("Retry-After", after)
	} else if errors.Is(err, store.ErrUnavailable) {
		oauth2.SetRetryAfter(w.Header(), refused.Status)
	}
	return caddyhttp.Error(refused.Status, err)
}

// accessLog writes decisions about requests to the audit log.
type accessLog struct {
	events *audit.Log
	reads  bool // also record permitted reads and searches
	app    App  // resolves the persons of its own issuer; may be nil
}

// newAccessLog writes to the audit log of the app, which may be nil.
func newAccessLog(ctx caddy.Context, app App, reads bool) accessLog {
	if app != nil {
		return accessLog{app.Events(), reads, app}
	}
	return accessLog{audit.NewLog(fhirbase.NewLogger(ctx, fhirbase.AuditLogger)), reads, nil}
}

// record records a decision. Permitted reads and searches are only recorded if configured, because they are as many as the
// requests.
func (l accessLog) record(r *http.Request, b enforce.Bearer, d enforce.Decision) {
	if !d.IsRejected() && !d.Changes && !l.reads {
		return
	}
	l.events.Record(r.Context(), audit.Event{
		Kind: audit.Access, User: b.Token.Subject, ClientID: b.Token.ClientID, Scope: d.Scope(), Address: requester.Address(r),
		Interaction: nameOf(d.Interaction), Err: refusalOf(d.Err),
		Person: l.personOf(r, b.Token),
	})
}

// personOf returns the person's account at their identity provider, for a token of our own issuer.
func (l accessLog) personOf(r *http.Request, t *guard.Token) (none audit.Person) {
	if l.app == nil || t.Provider == "" {
		return none
	}
	return l.app.Person(r.Context(), t.Subject)
}

// recordOutage records in the audit log that a token could not be checked because the store is unavailable. The trail may be
// nil.
func recordOutage(r *http.Request, trail func(context.Context, audit.Event), err error) {
	if trail != nil && errors.Is(err, store.ErrUnavailable) {
		trail(r.Context(), audit.Event{Kind: audit.Access, Address: requester.Address(r), Err: err, Anonymous: true})
	}
}

// nameOf returns an interaction with its resource.
func nameOf(i interaction.Interaction) string {
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

// refusalOf returns an error with the code for its outcome in the audit log.
func refusalOf(err error) error {
	refused, ok := errors.AsType[*guard.Error](err)
	if !ok || refused.Status >= http.StatusInternalServerError {
		return err
	}
	code := refused.Code
	switch {
	case refused.Status == http.StatusNotFound:
		code = "not_found"
	case code == "":
		code = "invalid_request"
	}
	return &oauth2.Error{Code: code, Description: refused.Description, Err: refused.Err}
}

// outcomeOf returns the outcome of an error for spans.
func outcomeOf(err error) string {
	refused, ok := errors.AsType[*guard.Error](err)
	switch {
	case err == nil:
		return string(decisionAllowed)
	case ok:
		return string(refusal(refused))
	}
	return "failed"
}

// verified authenticates a request in a separate span.
func verified(by *authenticator, r *http.Request) (*guard.Token, error) {
	inside, s := span.Request(r, span.Verify)
	defer s.End()
	token, err := by.authenticate(inside)
	s.Outcome(outcomeOf(err))
	return token, err
}

// judging creates a span for a judged call.
func judging(ctx context.Context, i interaction.Interaction) (context.Context, func(error)) {
	ctx, s := span.Start(ctx, span.Judge)
	if s == (span.Span{}) {
		return ctx, func(error) {}
	}
	s.Interaction(i)
	return ctx, func(err error) {
		s.Outcome(outcomeOf(err))
		s.End()
	}
}

// tracing sets the outcome in the span of a request. For a batch, the decision about the whole batch is the last one.
func tracing(record func(*http.Request, enforce.Bearer, enforce.Decision)) func(*http.Request, enforce.Bearer, enforce.Decision) {
	return func(r *http.Request, b enforce.Bearer, d enforce.Decision) {
		s := span.Current(r.Context())
		s.Interaction(d.Interaction)
		s.Outcome(outcomeOf(d.Err))
		record(r, b, d)
	}
}

// traceCalls returns the next handler, with a span for each call if spans are recorded.
func traceCalls(r *http.Request, next caddyhttp.Handler, base string) caddyhttp.Handler {
	if !span.Recording(r.Context()) {
		return next
	}
	return asking{next, base}
}

// asking creates a span for each call of the next handler.
type asking struct {
	next caddyhttp.Handler
	base string
}

// ServeHTTP implements caddyhttp.Handler.
func (a asking) ServeHTTP(w http.ResponseWriter, r *http.Request) error {
	r, s := span.Request(r, span.Ask)
	defer s.End()
	if i, err := interaction.Parse(r.Method, strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, a.base), "/"), r.URL.RawQuery, nil); err == nil {
		s.Interaction(i)
	}
	s.Outcome("failed") // if the handler aborts
	answer := &askedWriter{ResponseWriter: w, status: http.StatusOK}
	err := a.next.ServeHTTP(answer, r)
	if failed, ok := errors.AsType[caddyhttp.HandlerError](err); ok {
		answer.status = failed.StatusCode
	} else if err != nil {
		return err
	}
	switch {
	case answer.status < http.StatusBadRequest:
		s.Outcome("answered")
	case answer.status < http.StatusInternalServerError:
		s.Outcome("refused")
	}
	return err
}

// askedWriter records the status of a response.
type askedWriter struct {
	http.ResponseWriter
	status int
}

// WriteHeader implements http.ResponseWriter.
func (w *askedWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap gives http.ResponseController access to other features of the writer.
func (w *askedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
