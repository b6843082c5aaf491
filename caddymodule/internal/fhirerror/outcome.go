// Package fhirerror writes error responses for paths below the FHIR base and logs errors that the client did not cause.
//
//	outcome.go  OperationOutcomes for errors, unless the site has an error route; 404 for unhandled requests
//	log.go      rate-limited failure log
package fhirerror

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fhirbase"
	"github.com/caddy-fhir/caddy-fhir/terminology/negotiation"
)

// Write writes an error as an OperationOutcome in the format that the request accepts.
func Write(w http.ResponseWriter, r *http.Request, failure error) error {
	status, outcome, err := encodeOutcome(failure)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/fhir+json")
	if _, isJSON := errors.AsType[jsonError](failure); !isJSON && negotiation.HasXML() && negotiation.PrefersXML(r) {
		if outcome, err = negotiation.AppendXML(nil, outcome); err != nil {
			return err
		}
		w.Header().Set("Content-Type", "application/fhir+xml")
	}
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, err = w.Write(outcome)
	return err
}

// operationOutcome is an OperationOutcome. Unlike those of package terminology, it contains no details and no HTML.
type operationOutcome struct {
	ResourceType string         `json:"resourceType"`
	Issue        []outcomeIssue `json:"issue"`
}

type outcomeIssue struct {
	Severity    string `json:"severity"`
	Code        string `json:"code"`
	Diagnostics string `json:"diagnostics"`
}

// issueError is an error that may be shown to clients. IssueType returns a code of http://hl7.org/fhir/issue-type. Diagnostics
// returns a text without confidential data.
type issueError interface {
	error
	IssueType() string
	Diagnostics() string
}

// jsonError is an error that always has a JSON OperationOutcome: a rejection by fhir_bearer, which doesn't negotiate formats.
type jsonError interface {
	error
	OnlyJSON()
}

// outcomeError is an error that provides its OperationOutcome, if one issue with a code and a text is not sufficient.
type outcomeError interface {
	error
	OperationOutcome() []byte
}

// encodeOutcome converts an error to an OperationOutcome. If the error must not be shown to clients, because its text may
// contain host and file names, the outcome contains only the status text.
func encodeOutcome(err error) (status int, outcome []byte, _ error) {
	handlerErr, _ := errors.AsType[caddyhttp.HandlerError](err)
	status = cmp.Or(handlerErr.StatusCode, http.StatusInternalServerError)
	if withOutcome, ok := errors.AsType[outcomeError](err); ok {
		return status, withOutcome.OperationOutcome(), nil
	}
	outcome, err = json.Marshal(operationOutcome{"OperationOutcome", []outcomeIssue{newIssue(err, status)}})
	return status, outcome, err
}

func newIssue(err error, status int) outcomeIssue {
	if withIssue, ok := errors.AsType[issueError](err); ok {
		return outcomeIssue{"error", withIssue.IssueType(), withIssue.Diagnostics()}
	}
	if d, ok := issuesByStatus[status]; ok {
		return outcomeIssue{"error", d.code, d.text}
	}
	return outcomeIssue{"error", "processing", http.StatusText(status)}
}

var issuesByStatus = map[int]struct{ code, text string }{
	http.StatusUnauthorized:          {"login", "An access token is required."},
	http.StatusForbidden:             {"forbidden", "Access denied."},
	http.StatusNotFound:              {"not-found", "Not found."},
	http.StatusMethodNotAllowed:      {"not-supported", "Method not allowed."},
	http.StatusRequestEntityTooLarge: {"too-long", "The request is too large."},
	http.StatusTooManyRequests:       {"throttled", "Too many requests. Try again later."},
	http.StatusInternalServerError:   {"exception", "Internal error. See the gateway's log for the cause."},
	http.StatusBadGateway:            {"transient", "The FHIR server behind this gateway is unreachable. Try again later."},
	http.StatusServiceUnavailable:    {"transient", "Service temporarily unavailable. Try again later."},
	http.StatusGatewayTimeout:        {"timeout", "The FHIR server behind this gateway did not respond in time."},
}

// FailedBaseVar is the request variable that contains the FHIR base of the handler that failed, for fhir_outcome.
const FailedBaseVar = "fhir.failed_below"

// HandleError writes an OperationOutcome for an error below the FHIR base unless the site has an error route for the request,
// because Caddy would send an empty body. It logs errors that Caddy does not log.
func HandleError(w http.ResponseWriter, r *http.Request, base string, failures *Log, err error) error {
	if err == nil {
		return nil
	}
	ofAPI, errorRoutes := fhirbase.IsBelow(fhirbase.OriginalPath(r), base) || fhirbase.IsBelow(r.URL.Path, base), siteErrorRoutes(r)
	if ofAPI || errorRoutes != nil {
		failures.LogRequestError(r, err)
	}
	if !ofAPI {
		return err
	}
	caddyhttp.SetVar(r.Context(), FailedBaseVar, base)
	if errorRoutes != nil && hasMatchingRoute(errorRoutes.WithError(r, err), errorRoutes.Routes) {
		return err
	}
	return Write(w, r, err)
}

// siteErrorRoutes returns the error routes (`handle_errors`) of all sites of the server, or nil if there are none. In that
// case, Caddy logs failures itself.
func siteErrorRoutes(r *http.Request) *caddyhttp.HTTPErrorConfig {
	server, ok := r.Context().Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server)
	if !ok || server.Errors == nil || len(server.Errors.Routes) == 0 {
		return nil
	}
	return server.Errors
}

// hasMatchingRoute reports whether one of the routes matches a request. The error routes of the server include those of other
// sites.
func hasMatchingRoute(r *http.Request, routes caddyhttp.RouteList) bool {
	return slices.ContainsFunc(routes, func(route caddyhttp.Route) bool {
		matched, err := route.MatcherSets.AnyMatchWithError(r)
		return err != nil || matched && slices.ContainsFunc(route.Handlers, func(h caddyhttp.MiddlewareHandler) bool {
			nested, ok := h.(*caddyhttp.Subroute)
			return !ok || hasMatchingRoute(r, nested.Routes)
		})
	})
}

// OrNotFound responds with 404 if the next handler does not write a response. Caddy would send 200 with an empty body, which a
// client would interpret as success.
type OrNotFound struct {
	// Next is the handler that may not write a response. Required.
	Next caddyhttp.Handler
}

var errUnhandledRequest = errors.New("no handler responded to the request")

// ServeHTTP implements [caddyhttp.Handler].
func (h OrNotFound) ServeHTTP(w http.ResponseWriter, r *http.Request) error {
	tracker := &responseTracker{ResponseWriterWrapper: caddyhttp.ResponseWriterWrapper{ResponseWriter: w}}
	if err := h.Next.ServeHTTP(tracker, r); err != nil || tracker.started {
		return err
	}
	return caddyhttp.Error(http.StatusNotFound, errUnhandledRequest)
}

// responseTracker records whether a response has been started.
type responseTracker struct {
	caddyhttp.ResponseWriterWrapper
	started bool
}

func (a *responseTracker) WriteHeader(status int) {
	a.started = a.started || status >= http.StatusOK || status == http.StatusSwitchingProtocols
	a.ResponseWriterWrapper.WriteHeader(status)
}

func (a *responseTracker) Write(b []byte) (int, error) {
	a.started = true
	return a.ResponseWriterWrapper.Write(b)
}

// ReadFrom implements [io.ReaderFrom].
func (a *responseTracker) ReadFrom(r io.Reader) (int64, error) {
	a.started = true
	return a.ResponseWriterWrapper.ReadFrom(r)
}

// FlushError sends the header and buffered data to the client.
func (a *responseTracker) FlushError() error {
	a.started = true
	return http.NewResponseController(a.ResponseWriter).Flush()
}

// Hijack implements [http.Hijacker].
func (a *responseTracker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	a.started = true
	return http.NewResponseController(a.ResponseWriter).Hijack()
}
