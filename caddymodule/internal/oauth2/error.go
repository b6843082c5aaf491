package oauth2

import (
	"cmp"
	"errors"
	"net/http"
)

// Error is an OAuth 2.0 error: what the client is told, and why.
type Error struct {
	// Code is that of RFC 6749 §4.1.2.1 or §5.2, RFC 6750 §3.1 or OpenID Connect
	// Core §3.1.2.6.
	Code string

	// Description tells the client's developer what to change. Endpoints send it and error
	// pages show it. A redirect carries it only if Shown is set.
	Description string

	Status   int   // the HTTP status of a direct response. Default: 400.
	Err      error // the cause, for the log only
	Personal bool  // the person can fix it, not the client's developer
	Shown    bool  // the description goes to the redirect URI too
}

// Error returns the text for logs, with the cause.
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

// HTTPStatus returns the status of a direct response (RFC 6749 §5.2).
func (e *Error) HTTPStatus() int { return cmp.Or(e.Status, http.StatusBadRequest) }

// InvalidRequest is an error in the form of a request (RFC 6749 §4.1.2.1, §5.2).
func InvalidRequest(description string) *Error {
	return &Error{Code: "invalid_request", Description: description}
}

// StartAgain is an error that a person fixes by starting again.
func StartAgain(text string) *Error {
	return &Error{Code: "invalid_request", Description: text, Personal: true}
}

// InvalidGrant is an error of a code or refresh token (RFC 6749 §5.2).
func InvalidGrant(description string) *Error {
	return &Error{Code: "invalid_grant", Description: description}
}

// InvalidClient is an error of client authentication (RFC 6749 §5.2).
func InvalidClient(description string) *Error {
	return &Error{Code: "invalid_client", Description: description, Status: http.StatusUnauthorized}
}

// AsError returns the [Error] in err, or else a server_error that tells the client nothing
// (RFC 6749 §4.1.2.1).
func AsError(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return &Error{Code: "server_error", Status: http.StatusServiceUnavailable, Err: err}
}

// InvalidScope does not quote the scope, which may hold characters that are not allowed in
// an error_description (RFC 6749 §5.2).
func InvalidScope(err error) *Error {
	return &Error{Code: "invalid_scope", Description: "the scope is malformed, or more than the client may ask for", Err: err}
}
