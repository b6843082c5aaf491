package dispatch

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/terminology/cache"
	"github.com/caddy-fhir/caddy-fhir/terminology/negotiation"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
	"github.com/caddy-fhir/caddy-fhir/terminology/remote"
)

// askUpstream asks the terminology server for what is missing. It is still missing if the next handler is to be asked, which
// alone can know a resource by its id. If the server lacks something too, what is missing here is the better answer.
func (q *request) askUpstream(r *http.Request, m *missing) result {
	f := q.front
	if f.state.routes == nil || strings.Count(q.path, "/") > 1 {
		return result{missing: m}
	}
	asked := q.asking(r)
	subject := remote.SubjectOf(asked)
	server := f.state.routes.Server(subject.Lacking(m.err))
	if server == nil {
		return result{missing: m}
	}
	if whole, err := f.state.wholes.Answer(server, asked, f.options.Handler.Current().Synonyms()); err != nil {
		return result{err: err}
	} else if whole != nil {
		return result{answer: answerOf(whole)}
	}
	start := time.Now()
	theirs, err := server.Ask(r.Context(), asked.Request)
	f.host.Metrics.UpstreamTook(r.Context(), time.Since(start), err)
	switch {
	case err != nil:
		err = f.host.Failed(server.Base(), err)
		if stale, _ := f.state.wholes.Stale(server, asked, f.options.Handler.Current().Synonyms()); stale != nil && !errors.Is(err, context.Canceled) {
			return result{answer: answerOf(stale)}
		}
		return result{err: unavailable(m.afterUpstream(err), err)}
	case theirs.Negative() && !m.unknown:
		return m.answer()
	}
	answer, right := accepted(asked, subject.ValueSet, theirs)
	if right {
		f.state.wholes.Asked(server, asked, theirs)
	}
	return result{answer: answer}
}

// asking returns the request as another server is asked it.
func (q *request) asking(r *http.Request) remote.Question {
	return remote.Read(remote.Request{
		Method: r.Method, Path: q.path, Query: r.URL.RawQuery, Body: q.body, ContentType: r.Header.Get("Content-Type"),
		Accept: r.Header.Get("Accept"), AcceptLanguage: negotiation.Languages(r.Header["Accept-Language"]), IfNoneMatch: r.Header.Get("If-None-Match"),
	})
}

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

// passOn streams the next handler's response to the client. here is the reason why this gateway has none.
func (q *request) passOn(w http.ResponseWriter, r *http.Request, here error) result {
	if errors.Is(here, outcome.ErrUnknown) {
		return q.passUnknown(w, r, here)
	}
	return q.passIncomplete(w, r, here)
}

// passUnknown passes on the next handler's answer, whatever it is, since only it can know the value set. Without a next
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
func (f *Dispatcher) askFirst(w http.ResponseWriter, r *http.Request, next NextHandler) (answered bool, err error) {
	answer := &responseWriter{ResponseWriter: w}
	err = f.measureNext(answer, r, next)
	return answer.status != 0, err
}

func (f *Dispatcher) measureNext(w http.ResponseWriter, r *http.Request, next NextHandler) (err error) {
	start := time.Now()
	defer func() { f.host.Metrics.NextTook(r.Context(), time.Since(start), err) }()
	return next.ServeHTTP(w, r)
}
