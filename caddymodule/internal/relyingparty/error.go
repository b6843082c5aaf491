package relyingparty

import (
	"errors"
	"fmt"
	"strings"
)

// Kind is the kind of an [Error].
type Kind int

// The kinds. All but [Declined] have a description for the client.
const (
	TokenTimeout Kind = iota + 1 // the token endpoint did not begin to answer in time
	KeysTimeout                  // the key set did not arrive in time
	Refused                      // the token endpoint sent an error, or no token response (RFC 6749 §5)
	Reset                        // the provider closed a connection before it had answered
	ReadTimeout                  // another response did not arrive in time
	Declined                     // the browser came back with an error (RFC 6749 §4.1.2.1)
)

// String names the kind, for logs.
func (k Kind) String() string {
	names := [...]string{
		TokenTimeout: "token time-out", KeysTimeout: "keys time-out", Refused: "refused",
		Reset: "connection reset", ReadTimeout: "read time-out", Declined: "declined",
	}
	if k < TokenTimeout || int(k) >= len(names) {
		return fmt.Sprintf("kind %d", int(k))
	}
	return names[k]
}

// Error is a failure of the provider that the client learns of. Its Error method is for
// the log; [Error.Description] may be shown.
type Error struct {
	Kind   Kind // what went wrong
	Status int  // of the token endpoint's response, with [Refused] only

	// Code is the provider's error code (RFC 6749 §4.1.2.1, §5.2, or a Google API's) if it
	// has at most 100 characters, all allowed by the RFC. [Refused] and [Declined] only.
	Code string

	Err error // the cause
}

// Error returns the kind and the cause.
func (e *Error) Error() string {
	if e.Err == nil {
		return e.Kind.String()
	}
	return e.Kind.String() + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Description returns the error_description for the client's invalid_request, or false if
// the failure is a server_error. The texts are fixed except for the provider's name, the
// status and, for Google, its error code.
func (e *Error) Description(name string, google bool) (string, bool) {
	switch e.Kind {
	case TokenTimeout:
		return "Timeout occurred in calling IdP token endpoint", true
	case KeysTimeout:
		return "Timeout in calling jwks uri", true
	case Reset:
		return "Connection reset", true
	case ReadTimeout:
		return "Read timed out", true
	case Refused:
		detail := "error getting token"
		if google && e.Code != "" {
			detail = e.Code
		}
		return fmt.Sprintf("%s Error - %d %s", descriptionText(name), e.Status, detail), true
	}
	return "", false
}

// descriptionText replaces what RFC 6749 §4.1.2.1 forbids in error_description.
func descriptionText(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= ' ' && r <= '~' && r != '"' && r != '\\' {
			return r
		}
		return '?'
	}, s)
}

// errorCode returns a provider's error code, or "" if it is unfit for a redirect and the
// log (RFC 6749 §5.2).
func errorCode(code string) string {
	if len(code) > 100 || descriptionText(code) != code {
		return ""
	}
	return code
}

// The causes of other failures, for logs and tests.
var (
	ErrRedirect    = errors.New("answered with a redirect")      // which would choose our next request
	ErrTooLarge    = errors.New("answer too large")              // more than 1 MiB
	ErrStatus      = errors.New("answered with an error status") // of discovery, keys or userinfo
	ErrMetadata    = errors.New("unusable provider metadata")    // or of another issuer
	ErrKeys        = errors.New("unusable key set")              // not a JWK Set
	ErrUnknownKey  = errors.New("unknown key")                   // no key has this kid
	ErrSignature   = errors.New("wrong signature")               // or wrong algorithm, or no JWS
	ErrCallback    = errors.New("wrong authorization response")  // such as one of another issuer (RFC 9207 §2.4)
	ErrIDToken     = errors.New("invalid ID token")              // missing, or by OpenID Connect Core §3.1.3.7
	ErrLogoutToken = errors.New("invalid logout token")          // by OpenID Connect Back-Channel Logout 1.0 §2.6
	ErrUserInfo    = errors.New("invalid userinfo")              // or of another person (OpenID Connect Core §5.3.2)
)
