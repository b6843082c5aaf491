package oauth2

import (
	"errors"
	"net/http"
)

// Error is an OAuth 2.0 error: what the client is told, and why.
type Error struct {
	// Code is the error code of RFC 6749 §4.1.2.1 or §5.2, RFC 6750 §3.1 or
	// OpenID Connect Core §3.1.2.6.
	Code string

	// Description says what the client's developer should change. It is sent
	// by the token and userinfo endpoints and shown on error pages; at the
	// authorization endpoint it only goes to the log, because the interface
	// has the errors found there without an error_description.
	Description string

	// Status is the HTTP status where the error is not sent by redirect.
	// Default: 400.
	Status int

	// Err is the cause, for the log alone.
	Err error

	// Personal errors are the person's to mend, not the client's developer's.
	Personal bool

	// Shown sends the description to the redirect URI too: the interface fixes
	// the text of identity providers' errors.
	Shown bool
}

// Error implements error, for logs: what clients are told is the code, and the
// description at most.
func (e *Error) Error() string {
	text := e.Code
	if e.Description != "" {
		text += ": " + e.Description
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// HTTPStatus is the status of an answer with the error (RFC 6749 §5.2).
func (e *Error) HTTPStatus() int {
	if e.Status == 0 {
		return http.StatusBadRequest
	}
	return e.Status
}

// InvalidRequest is an error of the request's form (RFC 6749 §4.1.2.1 and §5.2).
func InvalidRequest(description string) *Error {
	return &Error{Code: "invalid_request", Description: description}
}

// StartAgain is an error that a person mends by beginning anew.
func StartAgain(text string) *Error {
	return &Error{Code: "invalid_request", Description: text, Personal: true}
}

// InvalidGrant is an error of a code, a refresh token or what belongs to one (RFC 6749 §5.2).
func InvalidGrant(description string) *Error {
	return &Error{Code: "invalid_grant", Description: description}
}

// InvalidClient is an error of client authentication (RFC 6749 §5.2).
func InvalidClient(description string) *Error {
	return &Error{Code: "invalid_client", Description: description, Status: http.StatusUnauthorized}
}

// AsError gives every error an OAuth code. What is not an [Error] already is our
// own fault: server_error, with no detail for the client (RFC 6749 §4.1.2.1).
func AsError(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return &Error{Code: "server_error", Status: http.StatusServiceUnavailable, Err: err}
}

// InvalidScope tells the client nothing of its own words: not all characters of
// theirs may stand in an error_description (RFC 6749 §5.2).
func InvalidScope(err error) *Error {
	return &Error{Code: "invalid_scope", Description: "the scope is malformed, or more than the client may ask for", Err: err}
}
