package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/caddy-fhir/caddy-fhir/terminology/cache"
)

// Errors that an [Error] wraps.
var (
	errUnreachable    = errors.New("server not reachable") // also used if the connection breaks before the response
	errNoServer       = fmt.Errorf("%w: no next handler", errUnreachable)
	errTimeout        = errors.New("no response within the timeout")
	errTruncated      = errors.New("response truncated")
	errTooLarge       = errors.New("response too large")
	errMalformed      = errors.New("not a FHIR response")
	ErrRejected       = errors.New("credentials rejected")
	errBusy           = errors.New("server overloaded")
	errServerFailed   = errors.New("server error") // reported by the server itself
	errInvalidRequest = errors.New("malformed request")
)

// Error is the reason why there is no response. It must not be stored.
type Error struct {
	// Status is the HTTP status for the client: 502, 503 (the server is overloaded), 504, or 400 (the request cannot be sent).
	Status int

	// Code is the issue type from http://hl7.org/fhir/issue-type.
	Code string

	// Text describes the failure and what to do. It is sent to clients and contains no URLs or text from the server.
	Text string

	// RetryAfter is the server's Retry-After (RFC 9110 §10.2.3), at most [cache.MaxRetryAfter]; 0 if it sent none.
	RetryAfter time.Duration

	// Err is the cause. It wraps an error of this package. It may contain host names, so it must only be logged.
	Err error
}

// Error returns the text and the cause. It must only be logged.
func (e *Error) Error() string { return e.Text + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// HTTPStatus returns the HTTP status for the client.
func (e *Error) HTTPStatus() int { return e.Status }

// IssueType returns the issue type for OperationOutcome.issue.code.
func (e *Error) IssueType() string { return e.Code }

// Diagnostics returns the text for OperationOutcome.issue.diagnostics.
func (e *Error) Diagnostics() string { return e.Text }

type errorKind struct {
	err    error
	status int
	code   string
	text   string // text that follows the name of the server
}

// errorKinds lists the kinds of errors. The first one that matches applies.
var errorKinds = []errorKind{
	{errInvalidRequest, http.StatusBadRequest, "invalid", "was not called: the request is malformed"},
	{errTimeout, http.StatusGatewayTimeout, "timeout", "did not respond in time; try again later"},
	{errTooLarge, http.StatusBadGateway, "too-costly", "returned a response that exceeds this server's size limit; request a part with offset and count"},
	{errTruncated, http.StatusBadGateway, "transient", "aborted its response; try again"},
	{errMalformed, http.StatusBadGateway, "exception", "did not return the requested FHIR resource; try again, or contact the operator of this server"},
	{ErrRejected, http.StatusBadGateway, "exception", "rejected this server's credentials; contact the operator of this server"},
	{errBusy, http.StatusServiceUnavailable, "transient", "is overloaded; try again later"},
	{errServerFailed, http.StatusBadGateway, "transient", "failed; try again later"},
	{errUnreachable, http.StatusBadGateway, "transient", "cannot be reached; try again later"},
}

// newError returns an Error with the given cause. A cause that wraps no error of this package is treated as errUnreachable.
func newError(name string, cause error) *Error {
	for _, f := range errorKinds {
		if errors.Is(cause, f.err) {
			return &Error{Status: f.status, Code: f.code, Text: name + " " + f.text, Err: cause}
		}
	}
	return newError(name, fmt.Errorf("%w: %w", errUnreachable, cause))
}

// networkError wraps a network error as errTimeout or kind. It removes the URL, because errors are logged and the query
// contains text that a user typed.
func networkError(kind, cause error) error {
	if urlError, ok := errors.AsType[*url.Error](cause); ok {
		cause = urlError.Err
	}
	var network net.Error
	if errors.Is(cause, context.DeadlineExceeded) || errors.As(cause, &network) && network.Timeout() {
		kind = errTimeout
	}
	return fmt.Errorf("%w: %w", kind, cause)
}

// Backoff enforces a server's Retry-After (RFC 9110 §10.2.3). It is safe for concurrent use. A nil Backoff does nothing.
type Backoff struct{ until atomic.Int64 }

// RecordRetryAfter records and returns the Retry-After of a response with status 503. It ignores status 429 unless all requests
// use the same identity, because that limit may apply to a single client (RFC 6585 §4).
func (b *Backoff) RecordRetryAfter(status int, header http.Header, sharedIdentity bool) time.Duration {
	if b == nil || status != http.StatusServiceUnavailable && (status != http.StatusTooManyRequests || !sharedIdentity) {
		return 0
	}
	now := time.Now()
	wait := cache.ParseRetryAfter(header, now)
	if wait > 0 {
		b.until.Store(now.Add(wait).UnixNano())
	}
	return wait
}

// Err returns an [*Error] while requests to the server are suspended, otherwise nil. name identifies the server to clients. It
// defaults to "the FHIR server".
func (b *Backoff) Err(name string) error {
	if b == nil {
		return nil
	}
	left := time.Duration(b.until.Load() - time.Now().UnixNano())
	if left <= 0 {
		return nil
	}
	e := newError(cmp.Or(name, nextHandlerName), fmt.Errorf("%w: retry in %s according to its Retry-After", errBusy, left.Round(time.Second)))
	e.RetryAfter = left
	return e
}

// nextHandlerName identifies the server behind the next handler to clients.
const nextHandlerName = "the FHIR server"
