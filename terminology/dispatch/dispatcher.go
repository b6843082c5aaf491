package dispatch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/api"
	"github.com/caddy-fhir/caddy-fhir/terminology/cache"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/budget"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
	"github.com/caddy-fhir/caddy-fhir/terminology/remote"
)

// Options configures a [Dispatcher].
type Options struct {
	// Base is the path of the FHIR API, such as /fhir/R4. Required.
	Base string

	// AllOperations also serves the other registered operations and metadata, and rejects unknown operations. Default: false,
	// which serves only $expand.
	AllOperations bool

	// Handler performs operations in this process. Required, including its CurrentLibrary field.
	Handler *api.Handler

	// Epoch returns an identifier of a library's contents. Responses stored for another epoch are not used. Required.
	Epoch func(*terminology.Library) string

	// State contains the data that later dispatchers reuse. Required.
	State *State

	// VaryBy determines which requests share responses from the next handler. Default: [cache.VaryByUser].
	VaryBy cache.VaryBy

	// VaryHeaders are the request headers that responses from the next handler depend on. Default: none.
	VaryHeaders []string

	// NextTimeout is how long the next handler may take for a response that can be stored. Required.
	NextTimeout time.Duration

	// Host provides the services of the surrounding server. Required.
	Host Host
}

// Dispatcher serves terminology operations. Create it with [New]. It is safe for concurrent use.
type Dispatcher struct {
	options             Options
	state               *State
	host                Host
	operations          operations
	admission           *admission
	schemes             atomic.Pointer[schemes]
	localCacheControl   []string // Cache-Control of local responses to requests without credentials
	privateCacheControl []string // Cache-Control of local responses to requests with credentials
}

// New returns a dispatcher with the given options.
func New(o Options) *Dispatcher {
	if o.Host.WithCORS == nil {
		o.Host.WithCORS = func(w http.ResponseWriter, _ *http.Request) http.ResponseWriter { return w }
	}
	return &Dispatcher{
		options: o, state: o.State, host: o.Host, operations: newOperations(o.Handler, o.AllOperations), admission: newAdmission(),
		localCacheControl: []string{"public, no-cache"}, privateCacheControl: []string{"private, no-cache"},
	}
}

// Serves reports whether the dispatcher serves the request's operation locally if possible.
func (f *Dispatcher) Serves(r *http.Request) bool { return f.operations.find(r, f.options.Base) != nil }

// ServeHTTP serves a request or passes it to next. If it writes no response, it returns an [*Error] or the error of next.
func (f *Dispatcher) ServeHTTP(w http.ResponseWriter, r *http.Request, next NextHandler) error {
	local := f.operations.find(r, f.options.Base)
	if local == nil {
		return f.serveOther(w, r, next)
	}
	w = f.host.WithCORS(w, r)
	if f.state.backend != nil {
		f.state.backend.setNext(f.host.Server, r, next)
	}
	if isInstance(r.URL.Path) && f.state.backend == nil {
		return f.finish(w, r, f.serveInstance(w, r, next, local))
	}
	return f.finish(w, r, f.serveOperation(w, r, f.newRequest(r, next, local)))
}

// serveOperation serves a request for an operation. Repeated requests are served through the cache, others locally if possible.
// Other servers are called only through the cache, which collapses concurrent requests, unless the response must not be stored.
// A request that depends on earlier requests of its client then goes to the next handler, because an upstream would confuse the
// cache-ids of different clients.
func (f *Dispatcher) serveOperation(w http.ResponseWriter, r *http.Request, q *request) result {
	var res result
	if q.record == neverSeen {
		res = q.serveLocal(w, r)
		if res.missing == nil && (q.schemes == nil || !isFetchFailure(res.err)) {
			return res
		}
		if err := q.readBody(r); err != nil {
			return result{err: err}
		}
		if res.missing != nil && f.state.routes == nil {
			q.record = servedByNext
		}
	}
	switch {
	case q.isPersonal:
	case q.schemes != nil:
		res = q.serveStored(w, r)
	default:
		if res = q.callUpstream(r, res.missing); res.response != nil {
			res.source = OutcomeUpstream
		}
	}
	if res.missing == nil && !q.isPersonal {
		return res
	}
	return q.streamNext(w, r, res.failure())
}

// isInstance reports whether the path of an operation contains a resource ID.
func isInstance(operation string) bool {
	return slices.Contains(definitionTypes, path.Base(path.Dir(path.Dir(operation))))
}

// errNextID is the error for a resource ID that only the next handler can resolve.
var errNextID error = outcome.NewUnknown("", "the resource ID belongs to the FHIR server behind this gateway")

// serveInstance serves an instance-level operation if definitions are not fetched. The ID refers to a resource of the next
// handler, because the library may have a different resource with the same ID. If there is no next handler, it refers to a
// resource of the library.
func (f *Dispatcher) serveInstance(w http.ResponseWriter, r *http.Request, next NextHandler, local operation) result {
	q := f.newRequest(r, next, func(http.ResponseWriter, *http.Request) error { return errNextID })
	if q.hash = 0; q.schemes != nil && r.Method != http.MethodPost {
		q.record = servedByNext
	}
	if res := f.serveOperation(w, r, q); !errors.Is(res.failure(), errNextID) {
		return res
	}
	if q.body != nil {
		r.Body = io.NopCloser(bytes.NewReader(q.body))
	}
	return f.serveOperation(w, r, f.newRequest(r, next, local))
}

// finish completes a request. It writes a pending response or the provisional response of an error, counts the outcome, and
// sets the status and Retry-After of an error.
func (f *Dispatcher) finish(w http.ResponseWriter, r *http.Request, res result) error {
	private := f.privateCacheControl
	if failed, ok := errors.AsType[*outcome.Error](res.failure()); ok && failed.Provisional != nil {
		private = privateNoCache
		w.Header()["Cache-Control"] = private
		res = result{response: newProvisionalResponse(failed.Provisional), source: OutcomeLocal}
	}
	if res.response != nil {
		if err := f.writeUnstored(w, r, res.response, private); err != nil {
			res = result{err: err}
		}
	}
	err := res.failure()
	if err != nil && res.source == "" {
		failed := errorOf(err)
		res.source, err = failed.outcome(), failed
	}
	f.host.Metrics.Count(r.Context(), res.source)
	if wait := retryAfter(err); wait > 0 {
		w.Header().Set("Retry-After", cache.FormatRetryAfter(wait))
	}
	return err
}

var privateNoCache = []string{"private, no-cache"}

// writeUnstored writes a response that is not stored. It marks responses to authorized requests as private, regardless of the
// server's Cache-Control, because the server is unaware of the guard (RFC 9111 §3.5).
func (f *Dispatcher) writeUnstored(w http.ResponseWriter, r *http.Request, a *cache.Response, private []string) error {
	header := w.Header()
	maps.Copy(header, a.Header)
	if f.isAuthorised(r) && !strings.Contains(header.Get("Cache-Control"), "no-store") {
		header["Cache-Control"] = private
	}
	header.Set("Content-Length", strconv.Itoa(len(a.Body)))
	w.WriteHeader(a.Status)
	if r.Method == http.MethodHead {
		return nil
	}
	if _, err := w.Write(a.Body); err != nil {
		return fmt.Errorf("writing the response: %w", err)
	}
	return nil
}

// operation serves a request, or returns an error before writing anything.
type operation func(w http.ResponseWriter, r *http.Request) error

// operations contains the operations served locally.
type operations struct {
	byType     map[string]operation // operations by type and name, e.g. "ValueSet/$expand"
	byInstance map[string]operation // instance-level operations with the same keys
	metadata   operation            // metadata with mode=terminology; nil if disabled
	fallbacks  map[string]operation // requests served locally if the next handler doesn't serve them: "metadata", "ValueSet", "ValueSet/"
}

func newOperations(h *api.Handler, all bool) operations {
	o := operations{
		byType:     map[string]operation{"ValueSet/$expand": h.Expand},
		byInstance: map[string]operation{"ValueSet/$expand": h.Expand},
	}
	if !all {
		return o
	}
	for _, registered := range api.Operations() {
		name, response := registered.Type+"/$"+registered.Name, h.Operation(registered)
		o.byType[name] = response
		if registered.HasInstanceLevel {
			o.byInstance[name] = response
		}
	}
	o.metadata = h.TerminologyCapabilities
	o.fallbacks = map[string]operation{
		"metadata": h.CapabilityStatement, "$versions": h.Versions,
		"CodeSystem": h.Search, "CodeSystem/": h.Read, "ValueSet": h.Search, "ValueSet/": h.Read,
	}
	return o
}

func (o operations) find(r *http.Request, base string) operation {
	path, relativePath := strings.CutPrefix(r.URL.Path, base+"/")
	if !relativePath || r.Method != http.MethodGet && r.Method != http.MethodHead && r.Method != http.MethodPost {
		return nil
	}
	if path == "metadata" && r.Method != http.MethodPost && r.URL.Query().Get("mode") == "terminology" {
		return o.metadata
	}
	if o.byType[path] != nil {
		return o.byType[path]
	}
	kind, rest, _ := strings.Cut(path, "/")
	if id, name, ok := strings.Cut(rest, "/"); ok && id != "" {
		return o.byInstance[kind+"/"+name]
	}
	return nil
}

// serveOther handles requests that are not for a local operation. If AllOperations is set, unhandled requests get 404; without
// a next handler, they would otherwise get an empty 200.
func (f *Dispatcher) serveOther(w http.ResponseWriter, r *http.Request, next NextHandler) error {
	var response *responseWriter
	if f.options.AllOperations && strings.HasPrefix(r.URL.Path, f.options.Base+"/") && r.Header.Get("Upgrade") == "" {
		response = &responseWriter{ResponseWriter: w}
		w = response
	}
	if err := f.forwardOther(w, r, next); err != nil || response == nil || response.status != 0 {
		return err
	}
	return &Error{Status: http.StatusNotFound, Err: &outcome.Error{
		Status: http.StatusNotFound, Code: "not-found", Text: "This server has no such operation or resource.",
	}}
}

// forwardOther passes a request to the next handler. If there is no response, it serves the request locally if possible.
func (f *Dispatcher) forwardOther(w http.ResponseWriter, r *http.Request, next NextHandler) error {
	local := f.operations.fallback(r, f.options.Base)
	if write := f.parseWrite(r); write != nil {
		return write.forward(w, r, next)
	}
	if local == nil {
		return next.ServeHTTP(w, r)
	}
	if responded, err := f.tryNext(w, r, next); responded || err != nil {
		return err
	}
	res := result{source: OutcomeLocal}
	if err := local(f.host.WithCORS(w, r), r); err != nil {
		res = result{err: err}
	}
	return f.finish(w, r, res)
}

// fallback returns the operation for requests that the next handler doesn't serve, or nil.
func (o operations) fallback(r *http.Request, base string) operation {
	path, relativePath := strings.CutPrefix(r.URL.Path, base+"/")
	if !relativePath || r.Method != http.MethodGet && r.Method != http.MethodHead {
		return nil
	}
	kind, id, of := strings.Cut(path, "/")
	if of && (id == "" || strings.ContainsAny(id, "/$")) {
		return nil
	}
	if of {
		kind += "/"
	}
	return o.fallbacks[kind]
}

// result is the result of a step: a response, a missing definition, or an error. If none of them is set, the response has
// already been written to the client.
type result struct {
	response *cache.Response
	missing  *missingDefinition
	err      error
	source   Outcome // source of the response or error; empty if unknown
}

// resultOf returns the result for the error of a handler. If err is nil, the handler has written its response.
func resultOf(err error) result {
	if m := missingOf(err); m != nil {
		return result{missing: m}
	}
	return result{err: err}
}

func (res result) failure() error {
	if res.missing != nil {
		return res.missing.err
	}
	return res.err
}

// missingDefinition is the reason why a request cannot be served locally. Another server may be able to serve it.
type missingDefinition struct {
	err               error
	definitionUnknown bool                 // whether the requested definition itself is missing
	provisional       *outcome.Provisional // response used if no other server has a better one; may be nil
}

// missingOf returns the missing definition that caused an error, or nil if the error has another cause.
func missingOf(err error) *missingDefinition {
	if err == nil {
		return nil
	}
	m := &missingDefinition{err: err, definitionUnknown: errors.Is(err, outcome.ErrUnknown)}
	if failed, ok := errors.AsType[*outcome.Error](err); ok {
		m.provisional = failed.Provisional
	}
	if !m.definitionUnknown && !errors.Is(err, outcome.ErrIncomplete) && !errors.Is(err, outcome.ErrUnsupported) {
		return nil
	}
	return m
}

// toResult returns the provisional response or, if there is none, an error response. The cache stores both as briefly as a 404.
func (m *missingDefinition) toResult() result {
	if m.provisional != nil {
		return result{response: newProvisionalResponse(m.provisional)}
	}
	failed, ok := errors.AsType[*outcome.Error](m.err)
	if !ok {
		return result{err: m.err}
	}
	header := http.Header{"Content-Type": {"application/fhir+json"}}
	return result{response: &cache.Response{Status: failed.Status, Header: header, Body: failed.OperationOutcome()}}
}

// newProvisionalResponse returns a response that the cache stores as briefly as a 404.
func newProvisionalResponse(p *outcome.Provisional) *cache.Response {
	return &cache.Response{Status: http.StatusOK, Header: http.Header{"Content-Type": {p.ContentType}}, Body: p.Body, Negative: true}
}

// errorAfterNext returns the error after a failure of the next handler: failed if the definition is unknown, else m.err.
func (m *missingDefinition) errorAfterNext(failed error) error {
	if m.definitionUnknown {
		return failed
	}
	return m.err
}

// errorAfterUpstream returns the error after a failed upstream: m.err if it has a provisional response, else failed.
func (m *missingDefinition) errorAfterUpstream(failed error) error {
	if m.provisional == nil {
		return failed
	}
	return m.err
}

// acceptResponse converts the response from another server for the cache. If it is an expansion of a different value set, it is
// probably wrong. It then gets Cache-Control: no-store, and right is false.
func acceptResponse(request remote.ParsedRequest, valueSet string, a *remote.Response) (_ *cache.Response, right bool) {
	if request.Request.Path == "ValueSet/$expand" && !a.IsNegative() && !a.NotModified && !a.MatchesCanonical(valueSet) {
		response := toCacheResponse(a)
		response.Header = maps.Clone(response.Header)
		response.Header["Cache-Control"] = []string{"no-store"}
		return response, false
	}
	return toCacheResponse(a.TrimToPage(request)), true
}

// toCacheResponse converts a response for the cache. The response has no tags, so the change of any definition invalidates it.
func toCacheResponse(a *remote.Response) *cache.Response {
	return &cache.Response{Status: a.Status, Header: a.Header, Body: a.Body}
}

// forwardError is returned by a producer if its response must not be stored. It specifies where to get the response instead.
type forwardError struct {
	destination destination
	missing     *missingDefinition
}

type destination uint8

const (
	viaNextCache destination = iota // from the cache of the next handler's responses
	directToNext
	directToLocal
)

var errForwardToNext = forwardError{destination: viaNextCache}

func (d *forwardError) Error() string {
	if d.destination == viaNextCache {
		return "the next handler must serve the request: " + d.missing.err.Error()
	}
	return "the response is too large to be stored"
}

func forwardErrorOf(err error) *forwardError {
	d, _ := errors.AsType[*forwardError](err)
	return d
}

// Error is the error of a request that could not be served.
type Error struct {
	// Status is the HTTP status. 0 means the status of the next handler's error in Err, or 500 if it has none.
	Status int

	// Err is the cause. Required.
	Err error
}

// Error implements error.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// statusClientClosedRequest is the status that nginx and Caddy log if the client disconnects.
const statusClientClosedRequest = 499

// errorOf returns an [Error] with the HTTP status for err.
func errorOf(err error) *Error {
	var own *outcome.Error
	var failed *remote.Error
	status := 0
	switch {
	case errors.As(err, &own):
		status = own.Status
	case errors.As(err, &failed):
		status = failed.HTTPStatus()
	case errors.Is(err, context.DeadlineExceeded):
		status = http.StatusGatewayTimeout
	case errors.Is(err, context.Canceled):
		status = statusClientClosedRequest
	case errors.Is(err, cache.ErrNotCached):
		status = http.StatusGatewayTimeout
		err = &outcome.Error{Status: status, Code: "processing", Text: "There is no stored response, and the request accepts no other (only-if-cached).", Err: err}
	}
	return &Error{Status: status, Err: err}
}

func (e *Error) outcome() Outcome {
	if errors.Is(e.Err, cache.ErrNotCached) || e.Status != 0 && e.Status < http.StatusInternalServerError {
		return OutcomeRejected
	}
	return OutcomeFailed
}

// newUnavailableError returns the error for a failed server. The cache temporarily rejects all requests with the same key,
// unless the server rejected only this client. cause is the server's error, err the error for the client.
func newUnavailableError(err, cause error) error {
	if errors.Is(cause, remote.ErrRejected) {
		return err
	}
	return &cache.UnavailableError{RetryAfter: retryAfter(cause), Err: err}
}

// retryAfter returns how long to wait before a retry (RFC 9110 §10.2.3); 0 if unknown.
func retryAfter(err error) time.Duration {
	if errors.Is(err, budget.ErrBusy) {
		return busyRetryAfter
	}
	if failed, ok := errors.AsType[*cache.UnavailableError](err); ok { // its RetryAfter is the remaining time
		return failed.RetryAfter
	}
	if failed, ok := errors.AsType[*remote.Error](err); ok {
		return failed.RetryAfter
	}
	return 0
}

// busyRetryAfter is the Retry-After for requests rejected because of overload.
const busyRetryAfter = 5 * time.Second
