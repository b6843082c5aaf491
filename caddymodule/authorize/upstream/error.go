package upstream

import (
	"errors"
	"fmt"
	"strings"
)

// Kind says which of the faults that have a text of their own an [Error] is.
type Kind int

// The kinds. All but [Declined] have a description for the client.
const (
	// TokenTimeout: the token endpoint did not begin to answer in time.
	TokenTimeout Kind = iota + 1
	// KeysTimeout: the key set was not there in time, at whatever stage.
	KeysTimeout
	// Refused: the token endpoint answered, but with an error, or with
	// something that is no token response (RFC 6749 §5). Status is set, and
	// Code where the answer has one.
	Refused
	// Reset: the provider ended a connection before it had answered.
	Reset
	// ReadTimeout: an answer began, but did not end in time; or discovery or
	// userinfo took too long, at whatever stage.
	ReadTimeout
	// Declined: the browser came back with an error instead of a code
	// (RFC 6749 §4.1.2.1), as when the person changed their mind. Code is set.
	Declined
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

// Error is a fault of the provider that the client is told about. Its Error
// method is for the log alone; what may be shown is [Error.Description].
type Error struct {
	// Kind says which fault it is.
	Kind Kind
	// Status is the HTTP status of the token endpoint's answer. Only with
	// [Refused].
	Status int
	// Code is the provider's error code (RFC 6749 §4.1.2.1, §5.2, or in the
	// form of Google's APIs), in the characters that the RFC allows and of at
	// most 100 of them; empty where the provider sent none such. Only with
	// [Refused] and [Declined].
	Code string
	// Err is the cause.
	Err error
}

// Error says the kind and the cause.
func (e *Error) Error() string {
	if e.Err == nil {
		return e.Kind.String()
	}
	return e.Kind.String() + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Description is the error_description that goes with invalid_request for this
// fault, and false where the fault has none (server_error, then). The texts are
// fixed but for the provider's display name, the status, and, if the provider
// is of the Google kind and sent one, its error code.
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

// descriptionText puts a question mark for each character of a display name
// that RFC 6749 §4.1.2.1 keeps out of error_description.
func descriptionText(s string) string {
	return strings.Map(func(r rune) rune {
		if !descriptionRune(r) {
			return '?'
		}
		return r
	}, s)
}

// errorCode is a provider's error code, or empty where it is none by RFC 6749
// §5.2: the text comes from outside and goes into a redirect and the log.
func errorCode(code string) string {
	unfit := func(r rune) bool { return !descriptionRune(r) }
	if len(code) > 100 || strings.ContainsFunc(code, unfit) {
		return ""
	}
	return code
}

// descriptionRune says whether a character is one of %x20-21, %x23-5B and
// %x5D-7E (RFC 6749 §4.1.2.1).
func descriptionRune(r rune) bool {
	return r >= ' ' && r <= '~' && r != '"' && r != '\\'
}

// The causes of the failures that are no [Error], for logs and tests.
var (
	// ErrRedirect: an endpoint answered with a redirect. To follow it would
	// let whoever can make the provider redirect choose our next request.
	ErrRedirect = errors.New("answered with a redirect")
	// ErrTooLarge: an answer has more than 1 MiB.
	ErrTooLarge = errors.New("answer too large")
	// ErrStatus: discovery, keys or userinfo answered with an error.
	ErrStatus = errors.New("answered with an error status")
	// ErrMetadata: the discovery document is not usable, or of another issuer.
	ErrMetadata = errors.New("unusable provider metadata")
	// ErrKeys: the key set is not one.
	ErrKeys = errors.New("unusable key set")
	// ErrUnknownKey: no key has this kid.
	ErrUnknownKey = errors.New("unknown key")
	// ErrSignature: a token's signature is not the key's, its algorithm is not
	// allowed, or it is no JWS at all.
	ErrSignature = errors.New("wrong signature")
	// ErrCallback: the browser came back with an answer that is not to be
	// used, as one of another issuer (RFC 9207 §2.4).
	ErrCallback = errors.New("wrong authorization response")
	// ErrIDToken: the ID token is missing, or fails OpenID Connect Core
	// §3.1.3.7.
	ErrIDToken = errors.New("invalid ID token")
	// ErrLogoutToken: the logout token fails OpenID Connect Back-Channel Logout
	// 1.0 §2.6.
	ErrLogoutToken = errors.New("invalid logout token")
	// ErrUserInfo: what userinfo says is unusable, or about another person
	// (OpenID Connect Core §5.3.2).
	ErrUserInfo = errors.New("invalid userinfo")
)
