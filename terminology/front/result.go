package front

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/cache"
	"github.com/caddy-fhir/caddy-fhir/terminology/remote"
)

// result is what came of one step: an answer, what is missing for one, or an error. The zero result is an answer
// that was written to the client.
type result struct {
	answer  *cache.Answer
	missing *missing
	err     error
}

// resultOf is the result of a handler that wrote its answer, or nothing and returned an error.
func resultOf(err error) result {
	if m := missingOf(err); m != nil {
		return result{missing: m}
	}
	return result{err: err}
}

// failure is the error that there is no answer, or nil if there is one.
func (res result) failure() error {
	if res.missing != nil {
		return res.missing.err
	}
	return res.err
}

// missing says why there is no answer here although another server may have one.
type missing struct {
	err     error
	unknown bool // even the definition that was asked for

	// provisional is the answer to give if nobody has a better one; nil: none.
	provisional *terminology.Provisional
}

// missingOf returns what an error says is missing; nil: something else failed.
func missingOf(err error) *missing {
	if err == nil {
		return nil
	}
	m := &missing{err: err, unknown: errors.Is(err, terminology.ErrUnknown), provisional: provisionalOf(err)}
	if !m.unknown && !errors.Is(err, terminology.ErrIncomplete) && !errors.Is(err, terminology.ErrUnsupported) {
		return nil
	}
	return m
}

// provisionalOf returns the answer to give in place of an error; nil: none.
func provisionalOf(err error) *terminology.Provisional {
	var failed *terminology.Error
	if !errors.As(err, &failed) {
		return nil
	}
	return failed.Provisional
}

// answer returns the provisional answer, or else one that says what is missing. It is stored as briefly as a 404.
func (m *missing) answer() result {
	var failed *terminology.Error
	switch {
	case m.provisional != nil:
		return result{answer: provisionalAnswer(m.provisional)}
	case !errors.As(m.err, &failed):
		return result{err: m.err}
	}
	header := http.Header{"Content-Type": {"application/fhir+json"}}
	return result{answer: &cache.Answer{Status: failed.Status, Header: header, Body: failed.OperationOutcome()}}
}

// afterNext returns the error for the client after the next handler failed. If the value set is known here, it helps
// more to say what is missing.
func (m *missing) afterNext(failed error) error {
	if m.unknown {
		return failed
	}
	return m.err
}

// afterUpstream returns the error for the client after an upstream failed, or the one with the provisional answer.
func (m *missing) afterUpstream(failed error) error {
	if m.provisional == nil {
		return failed
	}
	return m.err
}

// detour is the error of a producer whose answer is not to be stored. It says where the answer is found.
type detour struct {
	to      destination
	missing *missing
}

// destination is where a detour leads.
type destination uint8

const (
	nextStored destination = iota // the stored responses of the next handler
	nextStraight
	hereStraight
)

// Error implements error.
func (d *detour) Error() string {
	if d.to == nextStored {
		return "the next handler is to be asked: " + d.missing.err.Error()
	}
	return "the answer is too large to be stored"
}

// detourOf returns the detour that an error is; nil: none. A hit, without an error, allocates nothing.
func detourOf(err error) *detour {
	if err == nil {
		return nil
	}
	var d *detour
	errors.As(err, &d)
	return d
}

// unavailable returns the error for a server that failed. The cache gives it to everybody who asks the same in the next
// moment, unless the server only refused this client. cause is what the server said, err what the client is told.
func unavailable(err, cause error) error {
	if errors.Is(cause, remote.ErrRefused) {
		return err
	}
	return &cache.Unavailable{RetryAfter: retryAfter(cause), Err: err}
}

// retryAfter returns how long to wait before asking again (RFC 9110 §10.2.3); 0: nobody said.
func retryAfter(err error) time.Duration {
	var failed *remote.Error
	var unavailable *cache.Unavailable
	switch {
	case errors.Is(err, terminology.ErrBusy):
		return busyRetryAfter
	case errors.As(err, &unavailable): // what is left of the time
		return unavailable.RetryAfter
	case errors.As(err, &failed):
		return failed.RetryAfter
	}
	return 0
}

// busyRetryAfter is how long a client is to wait that did not get its turn.
const busyRetryAfter = 5 * time.Second

// Error is a request that was not answered.
type Error struct {
	// Status is the HTTP status code. 0: the one that the next handler gave Err, or else 500.
	Status int

	// Err is the cause. Required.
	Err error
}

// Error implements error.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// statusClientGone is the status that nginx and Caddy log for a client that did not wait.
const statusClientGone = 499

// errorOf finds the status for an error.
func errorOf(err error) *Error {
	var own *terminology.Error
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
		err = &terminology.Error{Status: status, Code: "processing", Text: "There is no answer in the cache, and the request wants no other (only-if-cached).", Err: err}
	}
	return &Error{Status: status, Err: err}
}

// outcome returns what the error counts as.
func (e *Error) outcome() Outcome {
	if errors.Is(e.Err, cache.ErrNotKept) || e.Status != 0 && e.Status < http.StatusInternalServerError {
		return Refused
	}
	return Failed
}
