package front

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"time"

	"github.com/caddy-fhir/caddy-fhir/terminology/cache"
	"github.com/caddy-fhir/caddy-fhir/terminology/remote"
)

const nextHandler = "next handler"

// askNext has the next handler make an answer to be stored, unless its Retry-After is not over.
func (q *request) askNext(r *http.Request, m *missing) result {
	f := q.front
	if err := f.state.backoff.Err(""); err != nil {
		return result{err: unavailable(m.afterNext(err), err)}
	}
	start := time.Now()
	ctx, cancel := context.WithTimeout(r.Context(), f.options.NextTimeout)
	defer cancel()
	r = r.WithContext(ctx)
	recorder := remote.NewRecorder(remote.DefaultMaxAnswer)
	request := q.forNext(r, recorder)
	err := recorder.Record(func(w http.ResponseWriter) error { return q.next.ServeHTTP(w, request) })
	f.host.Metrics.NextTook(r.Context(), time.Since(start), err)
	wait := f.state.backoff.Note(recorder.Status(), recorder.Header(), false)
	switch {
	case recorder.Cut() && remote.Begins(q.path, recorder.Header(), recorder.Body()):
		return result{err: &detour{nextStraight, m}}
	case recorder.Cut():
		_, err = recorder.Answer(q.path) // that it is too large
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		if !errors.Is(err, context.DeadlineExceeded) {
			err = errors.Join(ctx.Err(), err)
		}
	case err == nil && recorder.Status() == 0:
		return result{missing: m}
	case err == nil:
		return q.readNext(r, recorder, m)
	}
	err = f.host.Failed(nextHandler, err)
	return result{err: &cache.Unavailable{RetryAfter: wait, Err: m.afterNext(err)}}
}

// forNext returns the request for the next handler, for an answer that everybody can share.
func (q *request) forNext(r *http.Request, recorder *remote.Recorder) *http.Request {
	request := remote.Recordable(q.front.host.Server.Prepare(recorder, r))
	if q.body != nil { // which the next handler may be sent again
		request.Body = io.NopCloser(bytes.NewReader(q.body))
	}
	if condition := r.Header.Get("If-None-Match"); condition != "" {
		request.Header.Set("If-None-Match", condition)
	}
	return request
}

func (q *request) readNext(r *http.Request, recorder *remote.Recorder, m *missing) result {
	if recorder.Status() == http.StatusNotModified && r.Header.Get("If-None-Match") != "" {
		return result{answer: &cache.Answer{Status: http.StatusNotModified, Header: recorder.Header()}}
	}
	theirs, err := recorder.Answer(q.path)
	switch {
	case err == nil && theirs.Negative() && !m.unknown:
		return m.answer()
	case err == nil:
		asked := q.asking(r)
		answer, _ := accepted(asked, remote.SubjectOf(asked).ValueSet, theirs)
		return result{answer: withCookies(answer, recorder)}
	case m.unknown && recorder.Status() >= http.StatusMultipleChoices && isTold(recorder):
		return result{answer: recorded(recorder)}
	}
	if !errors.Is(err, remote.ErrRefused) { // which concerns only this client
		err = q.front.host.Failed(nextHandler, err)
	}
	return result{err: unavailable(m.afterNext(err), err)}
}

// isTold reports whether a response that is no answer is passed to the client: a redirect, a refusal, or a failure with an
// OperationOutcome.
func isTold(recorder *remote.Recorder) bool {
	return recorder.Status() < http.StatusInternalServerError || bytes.Contains(recorder.Body(), []byte(`"OperationOutcome"`))
}

// withCookies adds the server's cookies, with which an answer is not stored.
func withCookies(a *cache.Answer, recorder *remote.Recorder) *cache.Answer {
	if cookies := recorder.Header()["Set-Cookie"]; len(cookies) > 0 {
		a.Header = maps.Clone(a.Header)
		a.Header["Set-Cookie"] = cookies
	}
	return a
}
