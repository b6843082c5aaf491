package caddymodule

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/cache"
	"github.com/caddy-fhir/caddy-fhir/terminology/remote"
)

// question is a request for an operation, and all that it takes to have it answered
// when the request itself may be over.
type question struct {
	h         *Expand
	local     operation
	next      caddyhttp.Handler
	operation string // below the FHIR base: ValueSet/$expand
	body      []byte // of a POST

	asker asker

	// Of the request, as they were: what others do with them meanwhile is not seen.
	identity map[string]any
	vars     map[string]any
}

// forNext is the error for what only the next handler may know, where the answer
// was to be one for all.
type forNext struct{ here error }

// Error implements error.
func (e *forNext) Error() string { return "the next handler is to be asked: " + e.here.Error() }

// passOn is the error for an answer of the next handler that is too large to be
// kept: the client is to be given it as it comes.
type passOn struct{ here error }

// Error implements error.
func (e *passOn) Error() string { return "the next handler's answer is too large to be kept" }

// maxLocal is how large an answer that was made here may be to be kept. A larger
// one is written as it is made, as fast as it could be read, and never held whole.
const maxLocal = 2 << 20

// errMadeAnew is the error for an answer that is larger.
var errMadeAnew = errors.New("the answer is too large to be kept, and is made anew for whoever asks")

// elsewhere reports whether others may know better.
func elsewhere(err error) bool {
	return errors.Is(err, terminology.ErrUnknown) || errors.Is(err, terminology.ErrIncomplete) || errors.Is(err, terminology.ErrUnsupported)
}

// forAll makes an answer that is the same for all who ask: here, or by an upstream.
func (q *question) forAll(r *http.Request) (*cache.Answer, error) {
	return q.make(r, func(here error) (*cache.Answer, error) { return nil, &forNext{here} })
}

// forOne makes an answer that may depend on who asks.
func (q *question) forOne(r *http.Request) (*cache.Answer, error) {
	return q.make(r, func(here error) (*cache.Answer, error) { return q.askNext(r, here) })
}

func (q *question) make(r *http.Request, otherwise func(here error) (*cache.Answer, error)) (*cache.Answer, error) {
	w := newHeldAnswer()
	w.limit = maxLocal
	here := q.local(w, q.asker.on(r))
	q.rewind(r)
	switch {
	case here == nil:
		return w.local(), nil
	case errors.Is(here, errNotTaken):
		return nil, errMadeAnew
	case !elsewhere(here):
		return nil, here
	}
	if server := q.h.upstream(r, q.operation, q.body, here); server != nil {
		return q.askUpstream(r, server, here)
	}
	return otherwise(here)
}

// rewind lets the body be read again.
func (q *question) rewind(r *http.Request) {
	if r.Method == http.MethodPost {
		r.Body = io.NopCloser(bytes.NewReader(q.body))
	}
}

// upstream returns the server that is to be asked, or nil for the next handler: it
// alone can know what has which id.
func (h *Expand) upstream(r *http.Request, operation string, body []byte, here error) *remote.Server {
	if strings.Count(operation, "/") > 1 || h.Upstream == nil && len(h.Routes) == 0 {
		return nil
	}
	return h.kept.routes.Server(remote.SubjectOf(r.URL.RawQuery, r.Header.Get("Content-Type"), body).Lacking(here))
}

// askUpstream asks a terminology server. If it knows nothing of what is missing here
// alone, that is the more useful thing to say.
func (q *question) askUpstream(r *http.Request, server *remote.Server, here error) (*cache.Answer, error) {
	asked := remote.Question{
		Method: r.Method, Path: q.operation, Query: r.URL.RawQuery, Body: q.body, ContentType: r.Header.Get("Content-Type"),
		Accept: r.Header.Get("Accept"), AcceptLanguage: r.Header.Get("Accept-Language"), IfNoneMatch: r.Header.Get("If-None-Match"),
	}
	wholes := q.h.kept.wholes
	if wholes != nil {
		if answer, err := wholes.Answer(server, asked); answer != nil || err != nil {
			return answerOf(answer), err
		}
	}
	start := time.Now()
	answer, err := server.Ask(r.Context(), asked)
	metrics.upstream.Observe(time.Since(start).Seconds())
	switch {
	case err != nil:
		err = q.h.failures.server(server.Base(), err)
		return nil, unavailable(unlessIncomplete(isStanding(here), here, err), err)
	case answer.Negative() && !errors.Is(here, terminology.ErrUnknown):
		return missingHere(here)
	case !q.isAnsweredBy(r, answer):
		return notToKeep(answer), nil
	}
	if wholes != nil && !answer.NotModified {
		wholes.Asked(server, asked, answer)
	}
	return answerOf(answer), nil
}

// unavailable is the error for a server that failed, which all are given who ask the same in the next moment. cause is
// what the server said; err may be another error that is of more use to the client. That the server does not let
// somebody in is no failure that others need to hear of.
func unavailable(err, cause error) error {
	var failed *remote.Error
	if errors.Is(cause, remote.ErrRefused) {
		return err
	}
	if errors.As(cause, &failed) {
		return &cache.Unavailable{RetryAfter: failed.RetryAfter, Err: err}
	}
	return &cache.Unavailable{Err: err}
}

// isAnsweredBy reports whether an expansion is that of the value set that was asked for.
func (q *question) isAnsweredBy(r *http.Request, a *remote.Answer) bool {
	if q.operation != "ValueSet/$expand" || a.Negative() || a.NotModified {
		return true
	}
	return a.IsOf(remote.SubjectOf(r.URL.RawQuery, r.Header.Get("Content-Type"), q.body).ValueSet)
}

// notToKeep is an answer for the one who asked alone: who asks again is better served by another question than by a
// mistake that stays.
func notToKeep(a *remote.Answer) *cache.Answer {
	answer := answerOf(a)
	answer.Header = maps.Clone(answer.Header)
	answer.Header["Cache-Control"] = []string{"no-store"}
	return answer
}

// answerOf is an answer as the cache has it. What it was made of is not known for
// sure, so that each change ends it.
func answerOf(a *remote.Answer) *cache.Answer {
	if a == nil {
		return nil
	}
	return &cache.Answer{Status: a.Status, Header: a.Header, Body: a.Body}
}

// withCookies is an answer with the cookies that its server sets: they are for the one
// who asked, so that it is not kept.
func withCookies(a *cache.Answer, cookies []string) *cache.Answer {
	if len(cookies) > 0 {
		a.Header = maps.Clone(a.Header)
		a.Header["Set-Cookie"] = cookies
	}
	return a
}

// missingHere is the answer that says what is missing here, or the one that was made
// without it, to be kept like others that there is nothing.
func missingHere(here error) (*cache.Answer, error) {
	var failed *terminology.Error
	if !errors.As(here, &failed) {
		return nil, here
	}
	if failed.Provisional != nil {
		return standing(failed.Provisional), nil
	}
	header := http.Header{"Content-Type": {"application/fhir+json"}}
	return &cache.Answer{Status: failed.Status, Header: header, Body: failed.OperationOutcome()}, nil
}

// nextHandler is what the next handler is called in the log.
const nextHandler = "next handler"

// askNext asks the next handler, unless it said to be left alone.
func (q *question) askNext(r *http.Request, here error) (*cache.Answer, error) {
	incomplete := !errors.Is(here, terminology.ErrUnknown)
	if err := q.h.kept.backoff.Err(""); err != nil {
		return nil, unavailable(unlessIncomplete(incomplete, here, err), err)
	}
	defer func(start time.Time) { metrics.next.Observe(time.Since(start).Seconds()) }(time.Now())
	ctx, cancel := context.WithTimeout(r.Context(), q.h.timeout())
	defer cancel()
	r = r.WithContext(ctx)
	w := newHeldAnswer()
	w.limit = remote.DefaultMaxRecorded
	recorder := remote.NewRecorder(w, w.limit)
	condition := r.Header.Get("If-None-Match")
	request := remote.Recordable(q.prepare(r, recorder))
	if condition != "" {
		request.Header.Set("If-None-Match", condition)
	}
	err := record(recorder, func(w http.ResponseWriter) error { return q.next.ServeHTTP(w, request) })
	wait := q.h.kept.backoff.Note(recorder.Status(), recorder.Header(), false)
	switch {
	case recorder.Passed() && remote.Begins(q.operation, w.header, w.body.Bytes()):
		return nil, &passOn{here}
	case recorder.Passed():
		_, err = recorder.Answer(q.operation) // that it is too large
	case errors.Is(r.Context().Err(), context.DeadlineExceeded):
		err = caddyhttp.Error(http.StatusGatewayTimeout, errors.Join(r.Context().Err(), err))
	case err == nil && !recorder.Answered():
		return nil, here
	case err == nil:
		return q.readNext(r, w, recorder, here)
	}
	err = q.h.failures.server(nextHandler, err)
	return nil, &cache.Unavailable{RetryAfter: wait, Err: unlessIncomplete(incomplete, here, err)}
}

// readNext reads the next handler's answer.
func (q *question) readNext(r *http.Request, w *heldAnswer, recorder *remote.Recorder, here error) (*cache.Answer, error) {
	incomplete := !errors.Is(here, terminology.ErrUnknown)
	if recorder.Status() == http.StatusNotModified && r.Header.Get("If-None-Match") != "" {
		return &cache.Answer{Status: http.StatusNotModified, Header: recorder.Header()}, nil
	}
	answer, err := recorder.Answer(q.operation)
	switch {
	case err == nil && answer.Negative() && incomplete:
		return missingHere(here)
	case err == nil && !q.isAnsweredBy(r, answer):
		return withCookies(notToKeep(answer), recorder.Header()["Set-Cookie"]), nil
	case err == nil:
		return withCookies(answerOf(answer), recorder.Header()["Set-Cookie"]), nil
	case !incomplete && recorder.Status() >= http.StatusMultipleChoices:
		if told, failed := w.of(recorder); failed == nil && isTold(told) {
			return told, nil
		}
	}
	if !errors.Is(err, remote.ErrRefused) { // that is between it and whoever asks
		err = q.h.failures.server(nextHandler, err)
	}
	return nil, unavailable(unlessIncomplete(incomplete, here, err), err)
}

// record has the next handler answer. One that aborts because its answer is not
// taken is none that failed.
func record(recorder *remote.Recorder, next func(http.ResponseWriter) error) (err error) {
	defer func() {
		if cause := recover(); cause == http.ErrAbortHandler && recorder.Passed() {
			err = errNotTaken
		} else if cause != nil {
			panic(cause)
		}
	}()
	return recorder.Record(next)
}

// unlessIncomplete is a failure of others; but where it is known what is missing
// here, that is the more useful thing to say.
func unlessIncomplete(incomplete bool, here, failure error) error {
	if incomplete {
		return here
	}
	return failure
}

// isTold reports whether an answer that is none to the question is to be given to
// the client all the same: a redirect, a refusal, or a failure that is told in FHIR.
func isTold(a *cache.Answer) bool {
	return a.Status < http.StatusInternalServerError || bytes.Contains(a.Body, []byte(`"OperationOutcome"`))
}

// prepare makes the request one that Caddy's handlers can be given while the one
// that it was made of is being answered, or is over.
func (q *question) prepare(r *http.Request, w http.ResponseWriter) *http.Request {
	ctx := r.Context()
	original := ctx.Value(caddyhttp.OriginalRequestCtxKey)
	server, _ := ctx.Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server)
	replacer := caddy.NewReplacer()
	for name, value := range q.identity {
		replacer.Set(name, value)
	}
	r = caddyhttp.PrepareRequest(r, replacer, w, server)
	maps.Copy(r.Context().Value(caddyhttp.VarsCtxKey).(map[string]any), q.vars)
	return r.WithContext(context.WithValue(r.Context(), caddyhttp.OriginalRequestCtxKey, original))
}

// identityPlaceholders are those of fhir_bearer.
var identityPlaceholders = []string{
	"http.auth.user.id", "http.auth.user.client_id", "http.auth.user.scope", "http.auth.user.patient", "http.auth.user.fhir_user", "http.auth.user.issuer",
}

// remember keeps what the next handler may want to know of a request.
func (q *question) remember(r *http.Request) {
	if vars, ok := r.Context().Value(caddyhttp.VarsCtxKey).(map[string]any); ok {
		q.vars = maps.Clone(vars)
	}
	replacer, ok := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	if !ok {
		return
	}
	q.identity = make(map[string]any, len(identityPlaceholders))
	for _, name := range identityPlaceholders {
		if value, ok := replacer.Get(name); ok {
			q.identity[name] = value
		}
	}
}
