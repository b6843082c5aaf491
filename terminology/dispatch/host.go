package dispatch

import (
	"context"
	"net/http"
	"time"

	"github.com/caddy-fhir/caddy-fhir/terminology/cache"
)

// Host provides the services of the surrounding server.
type Host struct {
	// Guard identifies the user and client of requests. Required.
	Guard Guard

	// Server prepares requests for the next handler. Required.
	Server Server

	// WithCORS sets the CORS headers and returns the writer for the response. Default: no headers.
	WithCORS func(w http.ResponseWriter, r *http.Request) http.ResponseWriter

	// WriteLocalHeader writes the header of a local response, so that a guard can distinguish it from responses of other servers.
	// Default: WriteHeader.
	WriteLocalHeader func(w http.ResponseWriter, status int)

	// Metrics records requests and durations of servers. Required.
	Metrics Metrics

	// ReportFailure logs a failure of a server and returns the error to use instead. Required.
	ReportFailure func(server string, err error) error

	// Invalidate calls [State.ApplyInvalidation] of all states of the process and notifies its [Peers]. Required.
	Invalidate func(Invalidation)
}

// Guard identifies the principal that a request was authorized for.
type Guard interface {
	// Principal returns the full principal; zero without a guard.
	Principal(ctx context.Context) cache.Principal

	// Client returns only the client of the principal, or the full principal if it has no client.
	Client(ctx context.Context) cache.Principal
}

// Server prepares requests for the next handler, which requires more context values than net/http.
type Server interface {
	// Detach returns a context with a copy of the values that the next handler needs, for use after the request has ended.
	Detach(ctx context.Context) context.Context

	// Prepare converts a request with a detached context to one that the next handler accepts.
	Prepare(w http.ResponseWriter, r *http.Request) *http.Request

	// Background returns a handler that passes the gateway's own requests to next in the environment of r.
	Background(r *http.Request, next NextHandler) NextHandler

	// Status returns the HTTP status of an error of the next handler, or 0.
	Status(err error) int
}

// NextHandler is the next handler in the chain. It counts as absent if it writes nothing and returns nil.
type NextHandler interface {
	// ServeHTTP serves a request.
	ServeHTTP(w http.ResponseWriter, r *http.Request) error
}

// Metrics records requests and durations.
type Metrics interface {
	// Count counts a request by its outcome.
	Count(ctx context.Context, o Outcome)

	// ObserveNext records the duration of a call of the next handler.
	ObserveNext(ctx context.Context, duration time.Duration, err error)

	// ObserveUpstream records the duration of a call of an upstream.
	ObserveUpstream(ctx context.Context, duration time.Duration, err error)
}

// Outcome is the source of the response to a request for an operation, or the kind of its failure.
type Outcome string

// Outcomes of requests.
const (
	OutcomeLocal    Outcome = "here"
	OutcomeStored   Outcome = "cached"   // through the cache, regardless of the source of the response
	OutcomeNext     Outcome = "next"     // by the next handler, including its errors
	OutcomeUpstream Outcome = "upstream" // by a terminology server without the cache
	OutcomeRejected Outcome = "refused"
	OutcomeFailed   Outcome = "failed"
)

// Outcomes lists all outcomes.
var Outcomes = []Outcome{OutcomeLocal, OutcomeStored, OutcomeNext, OutcomeUpstream, OutcomeRejected, OutcomeFailed}

// Invalidation is an invalidation of stored responses and of definitions fetched from the backend. It covers all of its
// members; the zero Invalidation covers everything. Peers exchange it as JSON.
type Invalidation struct {
	// Definitions are changed definitions, by canonical or by type and ID (ValueSet/1), with all dependents.
	Definitions []string `json:"written,omitempty"`

	// ValueSet is the canonical of a value set with invalid expansions.
	ValueSet string `json:"value_set,omitempty"`

	// CodeSystem is the canonical of a code system: all responses with its concepts are invalid.
	CodeSystem string `json:"code_system,omitempty"`
}

func (e Invalidation) isAll() bool {
	return len(e.Definitions) == 0 && e.ValueSet == "" && e.CodeSystem == ""
}
