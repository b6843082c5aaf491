package front

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/cache"
)

// Options are those of a [Front].
type Options struct {
	// Base is the path of the FHIR API, as /fhir/R4. Required.
	Base string

	// AllOperations has all operations of [terminology.Handler] answered here, and what nobody answers refused.
	// Default: false, $expand alone.
	AllOperations bool

	// Handler answers operations from here. Required; its Current too.
	Handler *terminology.Handler

	// Epoch stands for a library; answers that were made from one with another epoch are not used. Required.
	Epoch func(*terminology.Library) string

	// State is what outlives this front. Required.
	State *State

	// VaryBy says who shares the answers of the next handler. Default: nobody does.
	VaryBy cache.VaryBy

	// VaryHeaders are headers that the answers of the next handler depend on. Default: none.
	VaryHeaders []string

	// MaxAge is how long clients may use an answer without asking again. Default: 0, they ask each time.
	MaxAge time.Duration

	// NextTimeout is how long the next handler may take to make an answer that is to be stored. Required.
	NextTimeout time.Duration

	// Host is the server around. Required.
	Host Host
}

// Host is what the server around provides.
type Host struct {
	// Guard says whom requests were authorised for. Required.
	Guard Guard

	// Server makes requests ready for the next handler. Required.
	Server Server

	// CrossOrigin sets headers for scripts of other origins, and returns the writer for the answer. Default: none
	// are set.
	CrossOrigin func(w http.ResponseWriter, r *http.Request) http.ResponseWriter

	// Metrics are told what becomes of requests. Required.
	Metrics Metrics

	// Failed logs that a server gave no answer. It returns the error to go on with. Required.
	Failed func(server string, err error) error

	// Written is told what a write at the next handler may have changed, as [State.Written] is to be. Required.
	Written func(names []string, sure bool)
}

// Guard tells whom a request was authorised for.
type Guard interface {
	// Principal returns all that is known; it is zero where there is no guard.
	Principal(ctx context.Context) cache.Principal

	// Client returns the client alone, or else all that is known. It is enough where answers are the same for all.
	Client(ctx context.Context) cache.Principal
}

// Server makes requests ready for the next handler, which expects more of their context than net/http does.
type Server interface {
	// Detach returns a context that keeps what the next handler needs to know of a request that may be over by
	// then.
	Detach(ctx context.Context) context.Context

	// Prepare returns a request, whose context was detached, as the next handler expects it.
	Prepare(w http.ResponseWriter, r *http.Request) *http.Request

	// Background returns a handler for requests that are of no client. They reach next as r did.
	Background(r *http.Request, next NextHandler) NextHandler

	// Status returns the status that an error of the next handler stands for; 0: none.
	Status(err error) int
}

// NextHandler is what is behind. It answers, or returns an error, or does neither: then nobody is there.
type NextHandler interface {
	// ServeHTTP answers a request.
	ServeHTTP(w http.ResponseWriter, r *http.Request) error
}

// Metrics count and measure.
type Metrics interface {
	// Count counts a request by its outcome.
	Count(Outcome)

	// NextTook measures an answer of the next handler.
	NextTook(time.Duration)

	// UpstreamTook measures an answer of an upstream.
	UpstreamTook(time.Duration)
}

// Outcome is what became of a request for an operation.
type Outcome string

// Outcomes of requests.
const (
	Here     Outcome = "here"
	Stored   Outcome = "cached"   // by way of the cache, whoever made the answer
	Next     Outcome = "next"     // what the next handler answers, errors among it
	Upstream Outcome = "upstream" // by a terminology server, past the cache
	Refused  Outcome = "refused"
	Failed   Outcome = "failed"
)

// Outcomes are all of them.
var Outcomes = []Outcome{Here, Stored, Next, Upstream, Refused, Failed}

// Front answers requests for operations, or has others answer them. Make one with [New]; it is safe for
// concurrent use.
type Front struct {
	*Options
	operations operations
	sightings  *sightings
	schemes    atomic.Pointer[schemes]
	detach     func(context.Context) context.Context
	public     []string // Cache-Control of what is made here
	private    []string // the same for authorised requests
}

// New returns a front.
func New(o Options) *Front {
	lifetime := "no-cache"
	if o.MaxAge > 0 {
		lifetime = fmt.Sprintf("max-age=%d", o.MaxAge/time.Second)
	}
	return &Front{
		Options: &o, operations: newOperations(o.Handler, o.AllOperations), sightings: newSightings(), detach: o.Host.Server.Detach,
		public: []string{"public, " + lifetime}, private: []string{"private, " + lifetime},
	}
}

// Serves reports whether a request is for an operation that is answered here, if it can be.
func (f *Front) Serves(r *http.Request) bool { return f.operations.find(r, f.Base) != nil }

// ServeHTTP answers a request, or has the next handler answer it. It returns an [*Error], or an error of the
// next handler, where nothing was written.
func (f *Front) ServeHTTP(w http.ResponseWriter, r *http.Request, next NextHandler) error {
	f.State.open()
	local := f.operations.find(r, f.Base)
	if local == nil {
		return f.serveOther(w, r, next)
	}
	w = f.crossOrigin(w, r)
	f.State.backend.reach(f.Host.Server, r, next)
	if err := f.serveOperation(w, r, next, local); err != nil {
		return f.refuse(w, r, err)
	}
	return nil
}

func (f *Front) crossOrigin(w http.ResponseWriter, r *http.Request) http.ResponseWriter {
	if f.Host.CrossOrigin == nil {
		return w
	}
	return f.Host.CrossOrigin(w, r)
}

// told counts an answer that was given, or the error in its place.
func (f *Front) told(by Outcome, err error) error {
	if err != nil {
		return f.fail(err)
	}
	f.Host.Metrics.Count(by)
	return nil
}

// fail counts an error and gives it a status, unless a provisional answer takes its place.
func (f *Front) fail(err error) error {
	if provisionalOf(err) != nil {
		return err
	}
	failed := errorOf(err)
	f.Host.Metrics.Count(failed.outcome())
	return failed
}

// refuse gives the provisional answer that an error has, or else tells by Retry-After when to ask again.
func (f *Front) refuse(w http.ResponseWriter, r *http.Request, err error) error {
	if p := provisionalOf(err); p != nil {
		w.Header()["Cache-Control"] = privateNoCache
		if err = f.told(Here, f.write(w, r, provisionalAnswer(p), privateNoCache)); err == nil {
			return nil
		}
	}
	if wait := retryAfter(err); wait > 0 {
		w.Header().Set("Retry-After", cache.Seconds(wait))
	}
	return err
}

// serveOther answers what is no operation of ours, or sees to it that somebody does: where all operations
// are answered here, nobody may be behind, and what nobody answers would be an empty 200.
func (f *Front) serveOther(w http.ResponseWriter, r *http.Request, next NextHandler) error {
	if !f.AllOperations || !strings.HasPrefix(r.URL.Path, f.Base+"/") || r.Header.Get("Upgrade") != "" {
		return f.passOther(w, r, next)
	}
	answer := &responseWriter{ResponseWriter: w}
	if err := f.passOther(answer, r, next); err != nil || answer.status != 0 {
		return err
	}
	return &Error{Status: http.StatusNotFound, Err: &terminology.Error{
		Status: http.StatusNotFound, Code: "not-found", Text: "There is no such operation or resource here.",
	}}
}

// passOther passes a request on, and answers it where the next handler does not, if that can be done here.
func (f *Front) passOther(w http.ResponseWriter, r *http.Request, next NextHandler) error {
	if write := f.writeOf(r); write != nil {
		return write.pass(w, r, next)
	}
	local := f.operations.other(r, f.Base)
	if local == nil {
		return next.ServeHTTP(w, r)
	}
	if answered, err := f.askFirst(w, r, next); answered || err != nil {
		return err
	}
	return f.told(Here, local(f.crossOrigin(w, r), r))
}
