package dispatch

import (
	"bytes"
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
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
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
