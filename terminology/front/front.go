package front

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/api"
	"github.com/caddy-fhir/caddy-fhir/terminology/cache"
)

// Options are those of a [Front].
type Options struct {
	// Base is the path of the FHIR API, such as /fhir/R4. Required.
	Base string

	// AllOperations answers all operations of [api.Handler] here, and refuses what nobody answers. Default: false,
	// only $expand.
	AllOperations bool

	// Handler answers operations here. Required, with its Current.
	Handler *api.Handler

	// Epoch identifies a library's contents. Answers made in another epoch are not used. Required.
	Epoch func(*terminology.Library) string

	// State is what outlives this front. Required.
	State *State

	// VaryBy says who shares the answers of the next handler. Default: [cache.VaryByUser].
	VaryBy cache.VaryBy

	// VaryHeaders are headers that the answers of the next handler depend on. Default: none.
	VaryHeaders []string

	// MaxAge is how long clients may use an answer without validating it. Default: 0.
	MaxAge time.Duration

	// NextTimeout bounds the time in which the next handler makes an answer to be stored. Required.
	NextTimeout time.Duration

	// Host is the server around. Required.
	Host Host
}

// Front answers requests for operations, or has others answer them. Make one with [New]. It is safe for concurrent use.
type Front struct {
	options    Options
	state      *State
	host       Host
	operations operations
	sightings  *sightings
	schemes    atomic.Pointer[schemes]
	detach     func(context.Context) context.Context
	public     []string // Cache-Control of answers made here
	private    []string // likewise, to authorised requests
}

// New returns a front.
func New(o Options) *Front {
	lifetime := "no-cache"
	if o.MaxAge > 0 {
		lifetime = fmt.Sprintf("max-age=%d", o.MaxAge/time.Second)
	}
	if o.Host.CrossOrigin == nil {
		o.Host.CrossOrigin = func(w http.ResponseWriter, _ *http.Request) http.ResponseWriter { return w }
	}
	return &Front{
		options: o, state: o.State, host: o.Host, operations: newOperations(o.Handler, o.AllOperations), sightings: newSightings(), detach: o.Host.Server.Detach,
		public: []string{"public, " + lifetime}, private: []string{"private, " + lifetime},
	}
}

// Serves reports whether a request is for an operation that is answered here, if it can be.
func (f *Front) Serves(r *http.Request) bool { return f.operations.find(r, f.options.Base) != nil }

// ServeHTTP answers a request, or has the next handler answer it. If nothing was written, it returns an [*Error] or an
// error of the next handler.
func (f *Front) ServeHTTP(w http.ResponseWriter, r *http.Request, next NextHandler) error {
	f.state.open()
	local := f.operations.find(r, f.options.Base)
	if local == nil {
		return f.serveOther(w, r, next)
	}
	w = f.host.CrossOrigin(w, r)
	f.state.backend.learn(f.host.Server, r, next)
	if err := f.serveOperation(w, r, next, local); err != nil {
		return f.refuse(w, r, err)
	}
	return nil
}
