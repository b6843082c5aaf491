package front

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/caddy-fhir/caddy-fhir/terminology/cache"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/budget"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
	"github.com/caddy-fhir/caddy-fhir/terminology/remote"
)

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

// retryAfter returns how long to wait (RFC 9110 §10.2.3); 0: nobody said.
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
