package front

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology/cache"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
)

// reply ends a request: it writes an answer that is not written yet, the provisional one of an error if there is one,
// counts, and sets the status and the Retry-After of an error.
func (f *Front) reply(w http.ResponseWriter, r *http.Request, res result) error {
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
func (f *Front) write(w http.ResponseWriter, r *http.Request, a *cache.Answer, private []string) error {
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
