package dispatch

import (
	"context"
	"net/http"
	"time"

	"github.com/caddy-fhir/caddy-fhir/terminology/cache"
)

// Host provides the services of the surrounding server.
type Host struct {
	// Guard identifies the client and the user of a request. Required.
	Guard Guard

	// Server prepares requests for the next handler. Required.
	Server Server

	// WithCORS sets the CORS headers and returns the writer for the response. Default: no headers.
	WithCORS func(w http.ResponseWriter, r *http.Request) http.ResponseWriter

	// WriteLocalHeader writes the header of a local response, so that a guard can distinguish local responses from those of
	// other servers. Default: WriteHeader.
	WriteLocalHeader func(w http.ResponseWriter, status int)

	// Metrics records requests and durations of servers. Required.
	Metrics Metrics

	// ReportFailure logs the failure of a server and returns the error to use instead of err. Required.
	ReportFailure func(server string, err error) error

	// Invalidate calls [State.ApplyInvalidation] on every state in the process and notifies its [Peers]. Required.
	Invalidate func(Invalidation)
}

// Guard identifies the principal that a request was authorized for.
type Guard interface {
	// Principal returns the full principal, or the zero value if there is no guard.
	Principal(ctx context.Context) cache.Principal

	// Client returns only the client part of the principal, or the full principal if it has no client.
	Client(ctx context.Context) cache.Principal
}

// Server prepares requests for the next handler, which requires more context values than net/http.
type Server interface {
	// Detach returns a context with copies of the values that the next handler needs. It outlives the request.
	Detach(ctx context.Context) context.Context

	// Prepare returns a copy of a request with a detached context that the next handler accepts.
	Prepare(w http.ResponseWriter, r *http.Request) *http.Request

	// Background returns a handler that passes requests of the gateway itself to next, in the environment of r.
	Background(r *http.Request, next NextHandler) NextHandler

	// Status returns the HTTP status of an error from the next handler, or 0 if the error has none.
	Status(err error) int
}

// NextHandler is the next handler in the chain. It is treated as absent if it writes nothing and returns nil.
type NextHandler interface {
	// ServeHTTP serves a request. An error means that the caller writes the response.
	ServeHTTP(w http.ResponseWriter, r *http.Request) error
}

// Metrics records requests and durations.
type Metrics interface {
	// Count counts a request by its outcome.
	Count(ctx context.Context, o Outcome)

	// ObserveNext records the duration and the error of a call of the next handler.
	ObserveNext(ctx context.Context, duration time.Duration, err error)

	// ObserveUpstream records the duration and the error of a call of an upstream.
	ObserveUpstream(ctx context.Context, duration time.Duration, err error)
}

// Outcome is the source of the response to an operation request, or the kind of failure.
type Outcome string

// Outcomes of operation requests.
const (
	OutcomeLocal    Outcome = "here"
	OutcomeStored   Outcome = "cached"   // served through the cache, regardless of the source of the response
	OutcomeNext     Outcome = "next"     // served by the next handler, including error responses
	OutcomeUpstream Outcome = "upstream" // served by a terminology server without the cache
	OutcomeRejected Outcome = "refused"
	OutcomeFailed   Outcome = "failed"
)

// Outcomes lists all values of Outcome.
var Outcomes = []Outcome{OutcomeLocal, OutcomeStored, OutcomeNext, OutcomeUpstream, OutcomeRejected, OutcomeFailed}

// Invalidation specifies which stored responses, and which definitions fetched from the backend, are invalid. The fields are
// combined; the zero Invalidation covers everything. Peers exchange it as JSON.
type Invalidation struct {
	// Definitions are changed definitions, as canonicals or as type and ID (ValueSet/1). Their dependents are invalid too.
	Definitions []string `json:"written,omitempty"`

	// ValueSet is the canonical of a value set with invalid expansions.
	ValueSet string `json:"value_set,omitempty"`

	// CodeSystem is the canonical of a code system. All responses that contain its concepts are invalid.
	CodeSystem string `json:"code_system,omitempty"`
}

func (e Invalidation) isAll() bool {
	return len(e.Definitions) == 0 && e.ValueSet == "" && e.CodeSystem == ""
}
