package remote

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"
)

// What an [Error] wraps, by what failed.
var (
	// ErrUnreachable is wrapped when there is no connection to the server, or it broke before the answer began.
	ErrUnreachable = errors.New("server not reachable")

	// ErrTimeout is wrapped when the answer was not there, whole, in time.
	ErrTimeout = errors.New("no answer in time")

	// ErrCutShort is wrapped when the answer ended before its end.
	ErrCutShort = errors.New("answer cut short")

	// ErrTooLarge is wrapped when the answer is larger than it may be.
	ErrTooLarge = errors.New("answer too large")

	// ErrMalformed is wrapped when the answer is not the FHIR resource that was asked for.
	ErrMalformed = errors.New("not a FHIR answer")

	// ErrRefused is wrapped when the server does not accept the credentials that it was sent.
	ErrRefused = errors.New("credentials refused")

	// ErrFailed is wrapped when the server says that it failed, or is too busy.
	ErrFailed = errors.New("server failed")

	// ErrQuestion is wrapped when a question cannot be asked at all.
	ErrQuestion = errors.New("malformed question")
)

// Error is a question to which there is no answer. It is returned, never written, and nothing of it is to be
// cached.
type Error struct {
	// Status is the HTTP status for the client: 502, 504, 503 for a server that wants to be left alone, or 400 for a
	// question that cannot be asked.
	Status int

	// Code is the issue type, from http://hl7.org/fhir/issue-type.
	Code string

	// Text says to the client what failed and what to do. It holds no address and nothing that the server sent.
	Text string

	// RetryAfter is for how long the server wants to be left alone (RFC 9110 §10.2.3), at most
	// [cache.MaxRetryAfter]. Default: 0, it did not say.
	RetryAfter time.Duration

	// Err is the cause, which wraps one of the errors of this package. It may name hosts, so it is for the log.
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

// failure is what is told of one kind of error.
type failure struct {
	is     error
	status int
	code   string
	text   string // after the name of the server
}

// failures are the kinds of errors, in the order in which an error is tried against them.
var failures = []failure{
	{ErrQuestion, http.StatusBadRequest, "invalid", "cannot be asked this: the request is malformed"},
	{ErrTimeout, http.StatusGatewayTimeout, "timeout", "did not answer in time; try again later"},
	{ErrTooLarge, http.StatusBadGateway, "too-costly", "gave an answer that is larger than this server passes on; ask for a part, with offset and count"},
	{ErrCutShort, http.StatusBadGateway, "transient", "broke off its answer; try again"},
	{ErrMalformed, http.StatusBadGateway, "exception", "gave an answer that is not the FHIR resource asked for; try again, or tell the operator of this server"},
	{ErrRefused, http.StatusBadGateway, "exception", "did not let this server in; tell the operator of this server to check the credentials for it"},
	{ErrFailed, http.StatusBadGateway, "transient", "failed, or has too much to do; try again later"},
	{ErrUnreachable, http.StatusBadGateway, "transient", "cannot be reached; try again later"},
}

// fail makes an error of a cause, which wraps one of the errors of this package.
func fail(name string, cause error) *Error {
	for _, f := range failures {
		if errors.Is(cause, f.is) {
			return &Error{Status: f.status, Code: f.code, Text: name + " " + f.text, Err: cause}
		}
	}
	return fail(name, fmt.Errorf("%w: %w", ErrUnreachable, cause))
}

// broken wraps an error of the network: what it means is a timeout, or otherwise as it is told. The address that
// net/http puts before it is left out: its query holds what somebody typed, and errors are logged.
func broken(otherwise, cause error) error {
	if asked, ok := errors.AsType[*url.Error](cause); ok {
		cause = asked.Err
	}
	var network net.Error
	if errors.Is(cause, context.DeadlineExceeded) || errors.As(cause, &network) && network.Timeout() {
		otherwise = ErrTimeout
	}
	return fmt.Errorf("%w: %w", otherwise, cause)
}
