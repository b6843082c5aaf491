package dispatch

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"time"

	"github.com/caddy-fhir/caddy-fhir/terminology/cache"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/budget"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
	"github.com/caddy-fhir/caddy-fhir/terminology/remote"
)

// result is the result of a step: an answer, what is missing for one, or an error; with none of them, the answer has been
// written to the client.
type result struct {
	answer  *cache.Answer
	missing *missing
	err     error
	by      Outcome // who has answered, even if by the error; empty: nobody
}

// resultOf is the result of a handler that either wrote its answer or returned an error.
func resultOf(err error) result {
	if m := missingOf(err); m != nil {
		return result{missing: m}
	}
	return result{err: err}
}

func (res result) failure() error {
	if res.missing != nil {
		return res.missing.err
	}
	return res.err
}

// missing says why there is no answer here although another server may have one.
type missing struct {
	err         error
	unknown     bool                 // even the definition that was asked for
	provisional *outcome.Provisional // the answer if nobody has a better one; may be nil
}

// missingOf returns what an error says is missing, or nil.
func missingOf(err error) *missing {
	if err == nil {
		return nil
	}
	m := &missing{err: err, unknown: errors.Is(err, outcome.ErrUnknown)}
	if failed, ok := errors.AsType[*outcome.Error](err); ok {
		m.provisional = failed.Provisional
	}
	if !m.unknown && !errors.Is(err, outcome.ErrIncomplete) && !errors.Is(err, outcome.ErrUnsupported) {
		return nil
	}
	return m
}

// answer returns the provisional answer, or one that says what is missing. It is stored as briefly as a 404.
func (m *missing) answer() result {
	if m.provisional != nil {
		return result{answer: provisionalAnswer(m.provisional)}
	}
	failed, ok := errors.AsType[*outcome.Error](m.err)
	if !ok {
		return result{err: m.err}
	}
	header := http.Header{"Content-Type": {"application/fhir+json"}}
	return result{answer: &cache.Answer{Status: failed.Status, Header: header, Body: failed.OperationOutcome()}}
}

// provisionalAnswer is stored as briefly as a 404.
func provisionalAnswer(p *outcome.Provisional) *cache.Answer {
	return &cache.Answer{Status: http.StatusOK, Header: http.Header{"Content-Type": {p.ContentType}}, Body: p.Body, Negative: true}
}

// afterNext returns the error after the next handler failed: for a known value set, what is missing here is more helpful.
func (m *missing) afterNext(failed error) error {
	if m.unknown {
		return failed
	}
	return m.err
}

// afterUpstream returns the error after an upstream failed.
func (m *missing) afterUpstream(failed error) error {
	if m.provisional == nil {
		return failed
	}
	return m.err
}

// accepted converts the answer of another server for the cache. An expansion of another value set is probably wrong, and
// only for this client.
func accepted(asked remote.Question, valueSet string, a *remote.Answer) (_ *cache.Answer, right bool) {
	if asked.Request.Path == "ValueSet/$expand" && !a.Negative() && !a.NotModified && !a.IsOf(valueSet) {
		answer := answerOf(a)
		answer.Header = maps.Clone(answer.Header)
		answer.Header["Cache-Control"] = []string{"no-store"}
		return answer, false
	}
	return answerOf(a.Cut(asked)), true
}

// answerOf converts an answer for the cache, without tags: any change of a definition invalidates it.
func answerOf(a *remote.Answer) *cache.Answer {
	return &cache.Answer{Status: a.Status, Header: a.Header, Body: a.Body}
}

// detour is the error of a producer whose answer is not to be stored. It says where to find the answer.
type detour struct {
	to      destination
	missing *missing
}

type destination uint8

const (
	nextStored destination = iota // the stored responses of the next handler
	nextStraight
	hereStraight
)

var toNext = detour{to: nextStored}

func (d *detour) Error() string {
	if d.to == nextStored {
		return "the next handler is to be asked: " + d.missing.err.Error()
	}
	return "the answer is too large to be stored"
}

func detourOf(err error) *detour {
	d, _ := errors.AsType[*detour](err)
	return d
}

// Error is a request that was not answered.
type Error struct {
	// Status is the HTTP status. 0: that of Err from the next handler, or else 500.
	Status int

	// Err is the cause. Required.
	Err error
}

// Error implements error.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// statusClientGone is the status that nginx and Caddy log for a client that did not wait for the answer.
const statusClientGone = 499

// errorOf finds the status for an error.
func errorOf(err error) *Error {
	var own *outcome.Error
	var failed *remote.Error
	status := 0
	switch {
	case errors.As(err, &own):
		status = own.Status
	case errors.As(err, &failed):
		status = failed.HTTPStatus()
	case errors.Is(err, context.DeadlineExceeded):
		status = http.StatusGatewayTimeout
	case errors.Is(err, context.Canceled):
		status = statusClientGone
	case errors.Is(err, cache.ErrNotKept):
		status = http.StatusGatewayTimeout
		err = &outcome.Error{Status: status, Code: "processing", Text: "There is no answer in the cache, and the request wants no other (only-if-cached).", Err: err}
	}
	return &Error{Status: status, Err: err}
}

func (e *Error) outcome() Outcome {
	if errors.Is(e.Err, cache.ErrNotKept) || e.Status != 0 && e.Status < http.StatusInternalServerError {
		return Refused
	}
	return Failed
}

// unavailable returns the error for a server that failed. For a while, the cache answers all requests with the same key
// with it, unless the server refused only this client. cause is what the server said, err what the client is told.
func unavailable(err, cause error) error {
	if errors.Is(cause, remote.ErrRefused) {
		return err
	}
	return &cache.Unavailable{RetryAfter: retryAfter(cause), Err: err}
}

// retryAfter returns how long to wait (RFC 9110 §10.2.3); 0 means unknown.
func retryAfter(err error) time.Duration {
	if errors.Is(err, budget.ErrBusy) {
		return busyRetryAfter
	}
	if failed, ok := errors.AsType[*cache.Unavailable](err); ok { // it knows how much of the time is left
		return failed.RetryAfter
	}
	if failed, ok := errors.AsType[*remote.Error](err); ok {
		return failed.RetryAfter
	}
	return 0
}

// busyRetryAfter is for requests that did not get their turn.
const busyRetryAfter = 5 * time.Second
