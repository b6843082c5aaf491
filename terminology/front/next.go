package front

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"net/http"
	"time"

	"github.com/caddy-fhir/caddy-fhir/terminology/cache"
	"github.com/caddy-fhir/caddy-fhir/terminology/remote"
)

// nextHandler is the name of the next handler in the log.
const nextHandler = "next handler"

// askNext has the next handler make an answer to be stored, unless it asked for a pause that is not over.
func (q *request) askNext(r *http.Request, m *missing) result {
	f := q.front
	if err := f.state.backoff.Err(""); err != nil {
		return result{err: unavailable(m.afterNext(err), err)}
	}
	defer func(start time.Time) { f.host.Metrics.NextTook(time.Since(start)) }(time.Now())
	ctx, cancel := context.WithTimeout(r.Context(), f.options.NextTimeout)
	defer cancel()
	r = r.WithContext(ctx)
	w := newHeldResponse(remote.DefaultMaxRecorded)
	recorder := remote.NewRecorder(w, w.limit)
	err := record(recorder, q.next, q.forNext(r, recorder))
	wait := f.state.backoff.Note(recorder.Status(), recorder.Header(), false)
	switch {
	case recorder.Passed() && remote.Begins(q.path, w.header, w.body.Bytes()):
		return result{err: &detour{nextStraight, m}}
	case recorder.Passed():
		_, err = recorder.Answer(q.path) // that it is too large
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		if !errors.Is(err, context.DeadlineExceeded) {
			err = errors.Join(ctx.Err(), err)
		}
	case err == nil && !recorder.Answered():
		return result{missing: m}
	case err == nil:
		return q.readNext(r, w, recorder, m)
	}
	err = f.host.Failed(nextHandler, err)
	return result{err: &cache.Unavailable{RetryAfter: wait, Err: m.afterNext(err)}}
}

// forNext returns the request for the next handler: for a whole answer, which everybody can share.
func (q *request) forNext(r *http.Request, recorder *remote.Recorder) *http.Request {
	request := remote.Recordable(q.front.host.Server.Prepare(recorder, r))
	if condition := r.Header.Get("If-None-Match"); condition != "" {
		request.Header.Set("If-None-Match", condition)
	}
	return request
}

// record has the next handler answer. One that aborts because its answer is too large has not failed.
func record(recorder *remote.Recorder, next NextHandler, request *http.Request) (err error) {
	defer func() {
		cause := recover()
		if aborted, _ := cause.(error); errors.Is(aborted, http.ErrAbortHandler) && recorder.Passed() {
			err = errTooLarge
		} else if cause != nil {
			panic(cause)
		}
	}()
	return recorder.Record(func(w http.ResponseWriter) error { return next.ServeHTTP(w, request) })
}

func (q *request) readNext(r *http.Request, w *heldResponse, recorder *remote.Recorder, m *missing) result {
	if recorder.Status() == http.StatusNotModified && r.Header.Get("If-None-Match") != "" {
		return result{answer: &cache.Answer{Status: http.StatusNotModified, Header: recorder.Header()}}
	}
	answer, err := recorder.Answer(q.path)
	switch {
	case err == nil && answer.Negative() && !m.unknown:
		return m.answer()
	case err == nil && !q.isAnsweredBy(r, answer):
		return result{answer: withCookies(notStored(answer), recorder)}
	case err == nil:
		return result{answer: withCookies(answerOf(answer), recorder)}
	case m.unknown && recorder.Status() >= http.StatusMultipleChoices && recorder.Relay() == nil && isTold(w):
		return result{answer: w.answer()}
	}
	if !errors.Is(err, remote.ErrRefused) { // which concerns this client alone
		err = q.front.host.Failed(nextHandler, err)
	}
	return result{err: unavailable(m.afterNext(err), err)}
}

// isTold reports whether the client gets a response that is no answer all the same: a redirect, a refusal, or a failure
// with an OperationOutcome.
func isTold(w *heldResponse) bool {
	return w.status < http.StatusInternalServerError || bytes.Contains(w.body.Bytes(), []byte(`"OperationOutcome"`))
}

// withCookies adds the server's cookies for this client: such an answer is not stored.
func withCookies(a *cache.Answer, recorder *remote.Recorder) *cache.Answer {
	if cookies := recorder.Header()["Set-Cookie"]; len(cookies) > 0 {
		a.Header = maps.Clone(a.Header)
		a.Header["Set-Cookie"] = cookies
	}
	return a
}
