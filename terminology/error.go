package terminology

import (
	"errors"
	"fmt"
	"net/http"
)

// What an [Error] may wrap, so that a caller can tell whether another server might know better.
var (
	// ErrUnknown is wrapped when the value set, or its version, is not in the library.
	ErrUnknown = errors.New("value set not known")

	// ErrIncomplete is wrapped when the value set is in the library but something that its expansion
	// needs is not: a code system, or a version of it, a value set it imports, or the knowledge to
	// evaluate a filter.
	ErrIncomplete = errors.New("content missing")

	// ErrUnsupported is wrapped when the request has a parameter that would change which codes are in
	// the answer, and that this package does not implement.
	ErrUnsupported = errors.New("parameter not supported")
)

// Error is a failed $expand. It is returned, never written: the caller renders it, as an
// OperationOutcome, and must escape Text, which may repeat parts of the request.
type Error struct {
	// Status is the HTTP status code.
	Status int

	// Code is the issue type, from http://hl7.org/fhir/issue-type.
	Code string

	// Text says what is wrong, for a person.
	Text string

	// Err is the cause; nil if there is no more to say.
	Err error
}

// Error returns the text.
func (e *Error) Error() string { return e.Text }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// IssueType returns the issue type for OperationOutcome.issue.code.
func (e *Error) IssueType() string { return e.Code }

// Diagnostics returns the text for OperationOutcome.issue.diagnostics.
func (e *Error) Diagnostics() string { return e.Text }

// badRequest is the error for a parameter that is wrong in itself.
func badRequest(code, format string, args ...any) error {
	return &Error{Status: http.StatusBadRequest, Code: code, Text: fmt.Sprintf(format, args...)}
}

// unprocessable is the error for a value set that cannot be expanded because its definition is wrong.
func unprocessable(code, format string, args ...any) error {
	return &Error{Status: http.StatusUnprocessableEntity, Code: code, Text: fmt.Sprintf(format, args...)}
}

// incomplete is the error for a value set that cannot be expanded with what is in the library.
func incomplete(code, format string, args ...any) error {
	return &Error{Status: http.StatusUnprocessableEntity, Code: code, Text: fmt.Sprintf(format, args...), Err: ErrIncomplete}
}
