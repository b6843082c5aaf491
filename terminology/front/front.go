package front

import (
	"fmt"
	"net/http"
	"time"
)

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
		options: o, state: o.State, host: o.Host, operations: newOperations(o.Handler, o.AllOperations), sightings: newSightings(),
		public: []string{"public, " + lifetime}, private: []string{"private, " + lifetime},
	}
}

// Serves reports whether a request is for an operation that is answered here, if it can be.
func (f *Front) Serves(r *http.Request) bool { return f.operations.find(r, f.options.Base) != nil }

// ServeHTTP answers a request, or has the next handler answer it. If nothing was written, it returns an [*Error] or an
// error of the next handler.
func (f *Front) ServeHTTP(w http.ResponseWriter, r *http.Request, next NextHandler) error {
	local := f.operations.find(r, f.options.Base)
	if local == nil {
		return f.serveOther(w, r, next)
	}
	w = f.host.CrossOrigin(w, r)
	f.state.backend.learn(f.host.Server, r, next)
	if isInstance(r.URL.Path) && f.state.backend == nil {
		return f.reply(w, r, f.serveInstance(w, r, next, local))
	}
	return f.reply(w, r, f.serveOperation(w, r, f.newRequest(r, next, local)))
}
