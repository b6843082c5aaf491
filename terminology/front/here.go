package front

import (
	"errors"
	"net/http"

	"github.com/caddy-fhir/caddy-fhir/terminology"
)

// serveHere answers a request from here, straight to the client.
func (q *request) serveHere(w http.ResponseWriter, r *http.Request) result {
	header := w.Header()
	header["Cache-Status"], header["Cache-Control"] = missed, q.front.public
	if q.front.isAuthorised(r) {
		header["Cache-Control"] = q.front.private
	}
	err := q.local(w, r)
	if err == nil {
		return result{}
	}
	delete(header, "Cache-Status")
	delete(header, "Cache-Control")
	return resultOf(err)
}

// missed is the Cache-Status of what is made here (RFC 9211).
var missed = []string{"caddy-fhir; fwd=miss"}

// makeHere makes an answer here, to be stored.
func (q *request) makeHere(r *http.Request) result {
	w := newHeldResponse(maxHeldHere)
	err := q.local(w, r)
	q.rewind(r)
	switch {
	case err == nil:
		return result{answer: w.madeHere()}
	case errors.Is(err, errTooLarge):
		return result{err: &detour{to: hereStraight}}
	}
	return resultOf(err)
}

// maxHeldHere bounds the answers made here that are stored, in bytes. A larger one is written to the client while it is
// made, which takes no longer than copying it would.
const maxHeldHere = 2 << 20

// isFetchFailure reports whether a definition could not be fetched. A stale response is the best answer then.
func isFetchFailure(err error) bool {
	failed, ok := errors.AsType[*terminology.Error](err)
	return ok && failed.Status > http.StatusInternalServerError && !errors.Is(err, terminology.ErrBusy)
}
