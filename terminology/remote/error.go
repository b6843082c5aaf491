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
	errUnreachable    = errors.New("server not reachable") // or the connection broke before the response
	errNoServer       = fmt.Errorf("%w: no next handler", errUnreachable)
	errTimeout        = errors.New("no response within the timeout")
	errTruncated      = errors.New("response truncated")
	errTooLarge       = errors.New("response too large")
	errMalformed      = errors.New("not a FHIR response")
	ErrRejected       = errors.New("credentials rejected")
	errBusy           = errors.New("server overloaded")
	errServerFailed   = errors.New("server error") // reported by the server
	errInvalidRequest = errors.New("malformed request")
)

// Error is the reason for a missing response. It must not be stored.
type Error struct {
	// Status is the HTTP status for the client: 502, 504, 503 for an overloaded server, or 400 for a request that cannot
	// be sent.
	Status int

	// Code is the issue type from http://hl7.org/fhir/issue-type.
	Code string

	// Text describes the failure and its remedy for clients, without URLs or text from the server.
	Text string

	// RetryAfter is the server's Retry-After (RFC 9110 §10.2.3), at most [cache.MaxRetryAfter]. Default: 0, not sent.
	RetryAfter time.Duration

	// Err is the cause and wraps an error of this package. It may contain host names, so it must only be logged.
	Err error
}

// Error returns the text and the cause, for the log.
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
	text   string // error message after the server's name
}

// errorKinds lists the kinds of errors; the first match applies.
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

// newError returns an Error for a cause. A cause that wraps no error of this package counts as errUnreachable.
func newError(name string, cause error) *Error {
	for _, f := range errorKinds {
		if errors.Is(cause, f.err) {
			return &Error{Status: f.status, Code: f.code, Text: name + " " + f.text, Err: cause}
		}
	}
	return newError(name, fmt.Errorf("%w: %w", errUnreachable, cause))
}

// networkError wraps a network error as errTimeout or kind. It removes the URL: errors are logged, and the query
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

// Backoff enforces a server's Retry-After (RFC 9110 §10.2.3). It is safe for concurrent use and for nil.
type Backoff struct{ until atomic.Int64 }

// RecordRetryAfter records and returns the Retry-After of a response with 503. It ignores 429 unless all requests use the same
// identity, because that limit may apply to a single client (RFC 6585 §4).
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

// Err returns an [*Error] while requests to the server are suspended. name identifies the server to clients; default:
// the FHIR server.
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
