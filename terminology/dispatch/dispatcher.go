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

// Options are those of a [Dispatcher].
type Options struct {
	// Base is the path of the FHIR API, such as /fhir/R4. Required.
	Base string

	// AllOperations answers the registered operations and metadata here too, and rejects unknown ones. Default: false,
	// only $expand.
	AllOperations bool

	// Handler answers operations here. Required, with its Current.
	Handler *api.Handler

	// Epoch identifies a library's contents. Answers made in another epoch are not used. Required.
	Epoch func(*terminology.Library) string

	// State outlives this dispatcher. Required.
	State *State

	// VaryBy selects who shares the responses of the next handler. Default: [cache.VaryByUser].
	VaryBy cache.VaryBy

	// VaryHeaders are headers that the answers of the next handler depend on. Default: none.
	VaryHeaders []string

	// NextTimeout bounds the time in which the next handler makes an answer to be stored. Required.
	NextTimeout time.Duration

	// Host is the server around. Required.
	Host Host
}

// Dispatcher answers requests for operations, or has others answer them. Make one with [New]. It is safe for concurrent use.
type Dispatcher struct {
	options    Options
	state      *State
	host       Host
	operations operations
	sightings  *sightings
	schemes    atomic.Pointer[schemes]
	public     []string // Cache-Control of answers made here
	private    []string // likewise, to authorised requests
}

// New returns a dispatcher.
func New(o Options) *Dispatcher {
	if o.Host.CrossOrigin == nil {
		o.Host.CrossOrigin = func(w http.ResponseWriter, _ *http.Request) http.ResponseWriter { return w }
	}
	return &Dispatcher{
		options: o, state: o.State, host: o.Host, operations: newOperations(o.Handler, o.AllOperations), sightings: newSightings(),
		public: []string{"public, no-cache"}, private: []string{"private, no-cache"},
	}
}

// Serves reports whether a request is for an operation that is answered here, if it can be.
func (f *Dispatcher) Serves(r *http.Request) bool { return f.operations.find(r, f.options.Base) != nil }

// ServeHTTP answers a request, or has the next handler answer it. If nothing was written, it returns an [*Error] or an
// error of the next handler.
func (f *Dispatcher) ServeHTTP(w http.ResponseWriter, r *http.Request, next NextHandler) error {
	local := f.operations.find(r, f.options.Base)
	if local == nil {
		return f.serveOther(w, r, next)
	}
	w = f.host.CrossOrigin(w, r)
	if f.state.backend != nil {
		f.state.backend.learn(f.host.Server, r, next)
	}
	if isInstance(r.URL.Path) && f.state.backend == nil {
		return f.reply(w, r, f.serveInstance(w, r, next, local))
	}
	return f.reply(w, r, f.serveOperation(w, r, f.newRequest(r, next, local)))
}

// serveOperation answers a request for an operation. One that came before goes through the cache, any other is answered
// here if possible. Servers are only asked through the cache, so that they are asked once, except for an answer that is
// not to be stored. A request that depends on earlier ones of its client is then for the next handler: an upstream would
// mix up the cache-ids of our clients.
func (f *Dispatcher) serveOperation(w http.ResponseWriter, r *http.Request, q *request) result {
	var res result
	if q.known == unseen {
		res = q.serveHere(w, r)
		if res.missing == nil && (q.schemes == nil || !isFetchFailure(res.err)) {
			return res
		}
		if err := q.readBody(r); err != nil {
			return result{err: err}
		}
		if res.missing != nil && f.state.routes == nil {
			q.known = seenNext
		}
	}
	switch {
	case q.personal:
	case q.schemes != nil:
		res = q.serveStored(w, r)
	default:
		if res = q.askUpstream(r, res.missing); res.answer != nil {
			res.by = Upstream
		}
	}
	if res.missing == nil && !q.personal {
		return res
	}
	return q.passOn(w, r, res.failure())
}

// isInstance reports whether the path of an operation names a resource by its id.
func isInstance(operation string) bool {
	return slices.Contains(definitionTypes, path.Base(path.Dir(path.Dir(operation))))
}

// errNextID is the error for a resource by an id that the next handler alone knows.
var errNextID error = outcome.Unknown("", "the resource belongs to the FHIR server behind this gateway")

// serveInstance serves an operation on an instance if no definitions are fetched from the next handler. Ids are those of
// the next handler: the library may have another resource with the same one. Without a next handler, they are the library's.
func (f *Dispatcher) serveInstance(w http.ResponseWriter, r *http.Request, next NextHandler, local operation) result {
	q := f.newRequest(r, next, func(http.ResponseWriter, *http.Request) error { return errNextID })
	if q.number = 0; q.schemes != nil && r.Method != http.MethodPost {
		q.known = seenNext
	}
	if res := f.serveOperation(w, r, q); !errors.Is(res.failure(), errNextID) {
		return res
	}
	if q.body != nil {
		r.Body = io.NopCloser(bytes.NewReader(q.body))
	}
	return f.serveOperation(w, r, f.newRequest(r, next, local))
}

// reply ends a request: it writes an answer that is not written yet, the provisional one of an error if there is one,
// counts, and sets the status and the Retry-After of an error.
func (f *Dispatcher) reply(w http.ResponseWriter, r *http.Request, res result) error {
	private := f.private
	if failed, ok := errors.AsType[*outcome.Error](res.failure()); ok && failed.Provisional != nil {
		private = privateNoCache
		w.Header()["Cache-Control"] = private
		res = result{answer: provisionalAnswer(failed.Provisional), by: Here}
	}
	if res.answer != nil {
		if err := f.write(w, r, res.answer, private); err != nil {
			res = result{err: err}
		}
	}
	err := res.failure()
	if err != nil && res.by == "" {
		failed := errorOf(err)
		res.by, err = failed.outcome(), failed
	}
	f.host.Metrics.Count(r.Context(), res.by)
	if wait := retryAfter(err); wait > 0 {
		w.Header().Set("Retry-After", cache.Seconds(wait))
	}
	return err
}

var privateNoCache = []string{"private, no-cache"}

// write writes an answer that is not stored. To an authorised request it is private, whatever the server says, which knows
// nothing of the guard (RFC 9111 §3.5).
func (f *Dispatcher) write(w http.ResponseWriter, r *http.Request, a *cache.Answer, private []string) error {
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
		return fmt.Errorf("writing the answer: %w", err)
	}
	return nil
}

// operation answers a request, or returns an error before it has written anything.
type operation func(w http.ResponseWriter, r *http.Request) error

// operations are those answered here.
type operations struct {
	ofType     map[string]operation // "ValueSet/$expand"
	ofInstance map[string]operation // the same, of ValueSet/{id}
	metadata   operation            // with mode=terminology; nil: not answered here
	others     map[string]operation // answered only if the next handler does not: "metadata", "ValueSet", "ValueSet/"
}

func newOperations(h *api.Handler, all bool) operations {
	o := operations{
		ofType:     map[string]operation{"ValueSet/$expand": h.Expand},
		ofInstance: map[string]operation{"ValueSet/$expand": h.Expand},
	}
	if !all {
		return o
	}
	for _, registered := range api.Registered() {
		name, answer := registered.Type+"/$"+registered.Name, h.Operation(registered)
		o.ofType[name] = answer
		if registered.OnInstance {
			o.ofInstance[name] = answer
		}
	}
	o.metadata = h.TerminologyCapabilities
	o.others = map[string]operation{
		"metadata": h.CapabilityStatement, "$versions": h.Versions,
		"CodeSystem": h.Search, "CodeSystem/": h.Read, "ValueSet": h.Search, "ValueSet/": h.Read,
	}
	return o
}

func (o operations) find(r *http.Request, base string) operation {
	path, below := strings.CutPrefix(r.URL.Path, base+"/")
	if !below || r.Method != http.MethodGet && r.Method != http.MethodHead && r.Method != http.MethodPost {
		return nil
	}
	if path == "metadata" && r.Method != http.MethodPost && r.URL.Query().Get("mode") == "terminology" {
		return o.metadata
	}
	if o.ofType[path] != nil {
		return o.ofType[path]
	}
	kind, rest, _ := strings.Cut(path, "/")
	if id, name, ok := strings.Cut(rest, "/"); ok && id != "" {
		return o.ofInstance[kind+"/"+name]
	}
	return nil
}

// serveOther handles a request for anything else. With all operations, what nobody answers is 404: without a next
// handler it would be an empty 200.
func (f *Dispatcher) serveOther(w http.ResponseWriter, r *http.Request, next NextHandler) error {
	var answer *responseWriter
	if f.options.AllOperations && strings.HasPrefix(r.URL.Path, f.options.Base+"/") && r.Header.Get("Upgrade") == "" {
		answer = &responseWriter{ResponseWriter: w}
		w = answer
	}
	if err := f.passOther(w, r, next); err != nil || answer == nil || answer.status != 0 {
		return err
	}
	return &Error{Status: http.StatusNotFound, Err: &outcome.Error{
		Status: http.StatusNotFound, Code: "not-found", Text: "There is no such operation or resource here.",
	}}
}

// passOther passes a request on. If the next handler does not answer it, it is answered here if possible.
func (f *Dispatcher) passOther(w http.ResponseWriter, r *http.Request, next NextHandler) error {
	local := f.operations.other(r, f.options.Base)
	if write := f.writeOf(r); write != nil {
		return write.pass(w, r, next)
	}
	if local == nil {
		return next.ServeHTTP(w, r)
	}
	if answered, err := f.askFirst(w, r, next); answered || err != nil {
		return err
	}
	res := result{by: Here}
	if err := local(f.host.CrossOrigin(w, r), r); err != nil {
		res = result{err: err}
	}
	return f.reply(w, r, res)
}

// other returns what answers a request if the next handler does not, or nil.
func (o operations) other(r *http.Request, base string) operation {
	path, below := strings.CutPrefix(r.URL.Path, base+"/")
	if !below || r.Method != http.MethodGet && r.Method != http.MethodHead {
		return nil
	}
	kind, id, of := strings.Cut(path, "/")
	if of && (id == "" || strings.ContainsAny(id, "/$")) {
		return nil
	}
	if of {
		kind += "/"
	}
	return o.others[kind]
}

// result is the result of a step: an answer, what is missing for one, or an error; with none of them, the answer has been
// written to the client.
type result struct {
	answer  *cache.Answer
	missing *missing
	err     error
	by      Outcome // who has answered, even if by the error; empty: nobody
}

// resultOf is the result of a handler that either wrote its answer or returned an error.
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

// missing says why there is no answer here although another server may have one.
type missing struct {
	err         error
	unknown     bool                 // even the definition that was asked for
	provisional *outcome.Provisional // the answer if nobody has a better one; may be nil
}

// missingOf returns what an error says is missing, or nil.
func missingOf(err error) *missing {
	if err == nil {
		return nil
	}
	m := &missing{err: err, unknown: errors.Is(err, outcome.ErrUnknown)}
	if failed, ok := errors.AsType[*outcome.Error](err); ok {
		m.provisional = failed.Provisional
	}
	if !m.unknown && !errors.Is(err, outcome.ErrIncomplete) && !errors.Is(err, outcome.ErrUnsupported) {
		return nil
	}
	return m
}

// answer returns the provisional answer, or one that says what is missing. It is stored as briefly as a 404.
func (m *missing) answer() result {
	if m.provisional != nil {
		return result{answer: provisionalAnswer(m.provisional)}
	}
	failed, ok := errors.AsType[*outcome.Error](m.err)
	if !ok {
		return result{err: m.err}
	}
	header := http.Header{"Content-Type": {"application/fhir+json"}}
	return result{answer: &cache.Answer{Status: failed.Status, Header: header, Body: failed.OperationOutcome()}}
}

// provisionalAnswer is stored as briefly as a 404.
func provisionalAnswer(p *outcome.Provisional) *cache.Answer {
	return &cache.Answer{Status: http.StatusOK, Header: http.Header{"Content-Type": {p.ContentType}}, Body: p.Body, Negative: true}
}

// afterNext returns the error after the next handler failed: for a known value set, what is missing here is more helpful.
func (m *missing) afterNext(failed error) error {
	if m.unknown {
		return failed
	}
	return m.err
}

// afterUpstream returns the error after an upstream failed.
func (m *missing) afterUpstream(failed error) error {
	if m.provisional == nil {
		return failed
	}
	return m.err
}

// accepted converts the answer of another server for the cache. An expansion of another value set is probably wrong, and
// only for this client.
func accepted(asked remote.Question, valueSet string, a *remote.Answer) (_ *cache.Answer, right bool) {
	if asked.Request.Path == "ValueSet/$expand" && !a.Negative() && !a.NotModified && !a.IsOf(valueSet) {
		answer := answerOf(a)
		answer.Header = maps.Clone(answer.Header)
		answer.Header["Cache-Control"] = []string{"no-store"}
		return answer, false
	}
	return answerOf(a.Cut(asked)), true
}

// answerOf converts an answer for the cache, without tags: any change of a definition invalidates it.
func answerOf(a *remote.Answer) *cache.Answer {
	return &cache.Answer{Status: a.Status, Header: a.Header, Body: a.Body}
}

// detour is the error of a producer whose answer is not to be stored. It says where to find the answer.
type detour struct {
	to      destination
	missing *missing
}

type destination uint8

const (
	nextStored destination = iota // the stored responses of the next handler
	nextStraight
	hereStraight
)

var toNext = detour{to: nextStored}

func (d *detour) Error() string {
	if d.to == nextStored {
		return "the next handler is to be asked: " + d.missing.err.Error()
	}
	return "the answer is too large to be stored"
}

func detourOf(err error) *detour {
	d, _ := errors.AsType[*detour](err)
	return d
}

// Error is a request that was not answered.
type Error struct {
	// Status is the HTTP status. 0: that of Err from the next handler, or else 500.
	Status int

	// Err is the cause. Required.
	Err error
}

// Error implements error.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// statusClientGone is the status that nginx and Caddy log for a client that did not wait for the answer.
const statusClientGone = 499

// errorOf finds the status for an error.
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
		status = statusClientGone
	case errors.Is(err, cache.ErrNotKept):
		status = http.StatusGatewayTimeout
		err = &outcome.Error{Status: status, Code: "processing", Text: "There is no answer in the cache, and the request wants no other (only-if-cached).", Err: err}
	}
	return &Error{Status: status, Err: err}
}

func (e *Error) outcome() Outcome {
	if errors.Is(e.Err, cache.ErrNotKept) || e.Status != 0 && e.Status < http.StatusInternalServerError {
		return Refused
	}
	return Failed
}

// unavailable returns the error for a server that failed. For a while, the cache answers all requests with the same key
// with it, unless the server refused only this client. cause is what the server said, err what the client is told.
func unavailable(err, cause error) error {
	if errors.Is(cause, remote.ErrRefused) {
		return err
	}
	return &cache.Unavailable{RetryAfter: retryAfter(cause), Err: err}
}

// retryAfter returns how long to wait (RFC 9110 §10.2.3); 0 means unknown.
func retryAfter(err error) time.Duration {
	if errors.Is(err, budget.ErrBusy) {
		return busyRetryAfter
	}
	if failed, ok := errors.AsType[*cache.Unavailable](err); ok { // it knows how much of the time is left
		return failed.RetryAfter
	}
	if failed, ok := errors.AsType[*remote.Error](err); ok {
		return failed.RetryAfter
	}
	return 0
}

// busyRetryAfter is for requests that did not get their turn.
const busyRetryAfter = 5 * time.Second
