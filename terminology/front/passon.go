package front

import (
	"errors"
	"maps"
	"net/http"
	"time"

	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
)

// passOn passes the next handler's answer to the client as it comes. here is why there is none from here.
func (q *request) passOn(w http.ResponseWriter, r *http.Request, here error) result {
	if errors.Is(here, outcome.ErrUnknown) {
		return q.passUnknown(w, r, here)
	}
	return q.passIncomplete(w, r, here)
}

// passUnknown passes on the next handler's answer, whatever it is, since nobody else can know the value set. Without a next
// handler, the error from here stands.
func (q *request) passUnknown(w http.ResponseWriter, r *http.Request, here error) result {
	if answered, err := q.front.askFirst(w, r, q.next); answered || err != nil {
		return result{by: Next, err: err}
	}
	return result{err: here}
}

// passIncomplete passes on the next handler's answer unless it is an error, when what is missing here is more helpful.
func (q *request) passIncomplete(w http.ResponseWriter, r *http.Request, here error) result {
	header := w.Header().Clone()
	answer := &responseWriter{ResponseWriter: w, refused: func(status int) bool { return status >= http.StatusBadRequest }}
	err := q.front.measureNext(answer, r, q.next)
	if err == nil && answer.status != 0 && !answer.dropped {
		return result{by: Next}
	}
	clear(w.Header()) // of the dropped response
	maps.Copy(w.Header(), header)
	return result{err: here}
}

// askFirst passes on the next handler's answer, and reports whether there is one.
func (f *Front) askFirst(w http.ResponseWriter, r *http.Request, next NextHandler) (answered bool, err error) {
	answer := &responseWriter{ResponseWriter: w}
	err = f.measureNext(answer, r, next)
	return answer.status != 0, err
}

func (f *Front) measureNext(w http.ResponseWriter, r *http.Request, next NextHandler) (err error) {
	start := time.Now()
	defer func() { f.host.Metrics.NextTook(r.Context(), time.Since(start), err) }()
	return next.ServeHTTP(w, r)
}
