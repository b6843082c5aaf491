package dispatch

import (
	"context"
	"net/http"
	"time"

	"github.com/caddy-fhir/caddy-fhir/terminology/cache"
)

// Host is what the server around provides.
type Host struct {
	// Guard says whom requests were authorised for. Required.
	Guard Guard

	// Server prepares requests for the next handler. Required.
	Server Server

	// CrossOrigin sets the headers for scripts of other origins, and returns the writer for the answer. Default: it
	// sets none.
	CrossOrigin func(w http.ResponseWriter, r *http.Request) http.ResponseWriter

	// BeginOwn writes the header of an answer that was made here, so that a guard can tell it from those of other servers.
	// Default: it is written as any other.
	BeginOwn func(w http.ResponseWriter, status int)

	// Metrics counts requests and measures servers. Required.
	Metrics Metrics

	// Failed logs that a server gave no answer, and returns the error to use instead. Required.
	Failed func(server string, err error) error

	// End calls [State.End] of all states of the process, and tells its [Peers]. Required.
	End func(Ending)
}

// Guard tells whom a request was authorised for.
type Guard interface {
	// Principal returns all that is known; it is zero if there is no guard.
	Principal(ctx context.Context) cache.Principal

	// Client returns the client alone, or all that is known if there is none. That is enough for shared answers.
	Client(ctx context.Context) cache.Principal
}

// Server prepares requests for the next handler, which expects more of their context than net/http does.
type Server interface {
	// Detach returns a context with a copy of what the next handler needs of a request, which may have ended by then.
	Detach(ctx context.Context) context.Context

	// Prepare turns a request with a detached context into one that the next handler accepts.
	Prepare(w http.ResponseWriter, r *http.Request) *http.Request

	// Background returns a handler that passes our own requests to next, as r reached it.
	Background(r *http.Request, next NextHandler) NextHandler

	// Status returns the HTTP status of an error of the next handler; 0 if it has none.
	Status(err error) int
}

// NextHandler is the handler behind. It answers, or returns an error. If it does neither, there is none.
type NextHandler interface {
	// ServeHTTP answers a request.
	ServeHTTP(w http.ResponseWriter, r *http.Request) error
}

// Metrics count and measure.
type Metrics interface {
	// Count counts a request by its outcome.
	Count(ctx context.Context, o Outcome)

	// NextTook measures an answer of the next handler.
	NextTook(ctx context.Context, took time.Duration, err error)

	// UpstreamTook measures an answer of an upstream.
	UpstreamTook(ctx context.Context, took time.Duration, err error)
}

// Outcome is what became of a request for an operation.
type Outcome string

// Outcomes of requests.
const (
	Here     Outcome = "here"
	Stored   Outcome = "cached"   // by way of the cache, whoever made the answer
	Next     Outcome = "next"     // by the next handler, including its errors
	Upstream Outcome = "upstream" // by a terminology server, past the cache
	Refused  Outcome = "refused"
	Failed   Outcome = "failed"
)

// Outcomes are all of them.
var Outcomes = []Outcome{Here, Stored, Next, Upstream, Refused, Failed}

// An Ending says which stored responses, and which definitions fetched from the backend, are not used any more: those of
// all its members. The zero Ending is all of them. Peers send it to each other in JSON.
type Ending struct {
	// Written are definitions that were written, by canonical or by type and id (ValueSet/1): what depends on them ends.
	Written []string `json:"written,omitempty"`

	// ValueSet is the canonical of a value set whose expansions end.
	ValueSet string `json:"value_set,omitempty"`

	// CodeSystem is the canonical of a code system: responses with its concepts end.
	CodeSystem string `json:"code_system,omitempty"`
}

func (e Ending) isAll() bool { return len(e.Written) == 0 && e.ValueSet == "" && e.CodeSystem == "" }
