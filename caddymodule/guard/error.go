package guard

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Causes of a rejection, for logs and tests. The client only gets the fields of [Error].
var (
	// ErrNoToken: the request has no bearer token (RFC 6750 §3.1).
	ErrNoToken = errors.New("no bearer token")
	// errInvalidRequest: the token is not sent as RFC 6750 §2.1 requires.
	errInvalidRequest = errors.New("bearer token sent incorrectly")
	// errHopByHop: the Connection header lists a header that contains an identity.
	errHopByHop = errors.New("protected header listed as hop-by-hop")
	// ErrAmbiguousPath: servers may interpret the path differently.
	ErrAmbiguousPath = errors.New("ambiguous request path")
	// errHolderRemoved: the token's user or client no longer exists.
	errHolderRemoved = errors.New("user or client no longer exists")
	// errMalformedToken: the token is not a compact JWS with a JSON header and JSON claims, or its claims are contradictory.
	errMalformedToken = errors.New("malformed token")
	// errTokenType: the typ header is not at+jwt (RFC 9068 §4), as in an ID token, or the claims identify another kind of token.
	errTokenType = errors.New("token is not an access token")
	// errAlgorithm: the algorithm in the alg header does not match the key or is not allowed.
	errAlgorithm = errors.New("signature algorithm not allowed")
	// errHeaderParameter: the header contains a parameter that is not accepted.
	errHeaderParameter = errors.New("token header parameter not accepted")
	// ErrUnknownKey: no key of the issuer has the token's kid. Also returned by a [KeySet].
	ErrUnknownKey = errors.New("unknown signing key")
	// ErrInvalidSignature: the key does not verify the signature.
	ErrInvalidSignature = errors.New("invalid token signature")
	// errUnexpectedIssuer: the iss claim is not the expected issuer.
	errUnexpectedIssuer = errors.New("unexpected token issuer")
	// errUnexpectedAudience: the aud claim does not contain the expected audience.
	errUnexpectedAudience = errors.New("unexpected token audience")
	// ErrExpired: the exp claim is in the past.
	ErrExpired = errors.New("token expired")
	// errNotYetValid: the nbf claim is in the future.
	errNotYetValid = errors.New("token not yet valid")
	// errInvalidIssuedAt: the iat claim is in the future, or after exp.
	errInvalidIssuedAt = errors.New("iat is in the future or after exp")
	// errMissingClaim: a required claim (RFC 9068 §2.2) is missing.
	errMissingClaim = errors.New("required token claim missing")
	// errSenderConstrained: the token is bound to a key of the client (RFC 8705, RFC 9449), so it may not be accepted as a
	// bearer token.
	errSenderConstrained = errors.New("token is sender-constrained and not accepted as a bearer token")
	// errRevokedToken: the token was revoked.
	errRevokedToken = errors.New("token revoked")
	// errInactiveToken: the introspection response reports the token as not active (RFC 7662 §2.2).
	errInactiveToken = errors.New("token not active")
	// ErrStepUp: the person must sign in again, or with a stronger method (RFC 9470).
	ErrStepUp = errors.New("insufficient user authentication")
	// ErrUnavailable: keys, revocations or introspection are unavailable.
	ErrUnavailable = errors.New("token verification unavailable")
)

// Error codes of RFC 6750 §3.1, and one of RFC 9470.
const (
	codeInvalidRequest = "invalid_request"
	codeInvalidToken   = "invalid_token"

	codeInsufficientScope = "insufficient_scope"
	codeStepUp            = "insufficient_user_authentication" // RFC 9470 §3
)

// Error is a rejection. Its Error method is for logs. Its fields, except Err, and [Error.Challenge] are for the client; they
// contain no unvalidated input.
type Error struct {
	// Status is the HTTP status: 400, 401, 403, 404, 405, 406, 409, 412, 413, 415, 422, 502 or 503.
	Status int
	// Code is the error code of RFC 6750 §3.1. It is empty if no token was sent or if Status is 503.
	Code string
	// Description is a sentence for the client's developer.
	Description string
	// Scope contains the missing scopes, separated by spaces. Each of them alone suffices. Empty if no scope would help.
	Scope string
	// StepUp is the required sign-in; nil unless the sign-in caused the rejection.
	StepUp *StepUp
	// Wait is the time to wait before retrying; 0 if unknown.
	Wait time.Duration
	// Err is the cause, which wraps one of the errors above.
	Err error
}

// Error returns the cause, or the description if the cause is nil.
func (e *Error) Error() string {
	if e.Err == nil {
		return e.Description
	}
	return e.Err.Error()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// OnlyJSON marks the error so that its OperationOutcome is JSON even if the request prefers XML, because fhir_bearer does not
// negotiate formats.
func (*Error) OnlyJSON() {}

// IssueType returns the value of OperationOutcome.issue.code (http://hl7.org/fhir/issue-type).
func (e *Error) IssueType() string {
	switch {
	case e.Status == http.StatusServiceUnavailable:
		return "transient"
	case errors.Is(e.Err, ErrExpired):
		return "expired"
	case e.Status == http.StatusUnauthorized:
		return "login"
	case e.Status == http.StatusMethodNotAllowed, e.Status == http.StatusNotAcceptable, e.Status == http.StatusUnsupportedMediaType:
		return "not-supported"
	case e.Status == http.StatusForbidden:
		return "forbidden"
	case e.Status == http.StatusNotFound:
		return "not-found"
	case e.Status == http.StatusConflict, e.Status == http.StatusPreconditionFailed:
		return "conflict"
	case e.Status == http.StatusRequestEntityTooLarge:
		return "too-long"
	case e.Status == http.StatusUnprocessableEntity:
		return "processing"
	case e.Status >= http.StatusInternalServerError:
		return "exception"
	case e.Code == "":
		return "invalid"
	default:
		return "security"
	}
}

// Diagnostics returns the value of OperationOutcome.issue.diagnostics.
func (e *Error) Diagnostics() string { return e.Description }

// Challenge returns the value of WWW-Authenticate (RFC 6750 §3). It is empty if a different token would not help: for every
// status except 401, 403, and 400 for a token that was sent incorrectly. If the request had no token, it contains no error code
// (§3.1).
func (e *Error) Challenge(realm string) string {
	if e.Status != http.StatusUnauthorized && e.Status != http.StatusForbidden && (e.Status != http.StatusBadRequest || e.Code == "") {
		return ""
	}
	challenge := "Bearer realm=" + quotedString(realm)
	if e.Code != "" {
		challenge += ", error=" + quotedString(e.Code)
		challenge += ", error_description=" + quotedString(e.Description)
	}
	if e.Scope != "" {
		challenge += ", scope=" + quotedString(e.Scope)
	}
	return challenge + e.StepUp.challenge()
}

// Allow returns the value of Allow, which is required for 405 (RFC 9110 §15.5.6): the methods of FHIR R4. It is empty for every
// other status.
func (e *Error) Allow() string {
	if e.Status != http.StatusMethodNotAllowed {
		return ""
	}
	return "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"
}

// RetryAfter returns the value of Retry-After (RFC 9110 §10.2.3) in seconds; empty if unknown.
func (e *Error) RetryAfter() string {
	if e.Wait <= 0 {
		return ""
	}
	return strconv.Itoa(int(math.Ceil(e.Wait.Seconds())))
}

// quotedString returns s as a quoted-string. It drops the characters that RFC 6750 §3 does not allow in attributes, because
// they could terminate the string or the header.
func quotedString(s string) string {
	return `"` + strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' || r == '"' || r == '\\' {
			return -1
		}
		return r
	}, s) + `"`
}

// missingToken returns the error for a request without a bearer token.
func missingToken(err error) *Error {
	return &Error{Status: http.StatusUnauthorized, Description: "An access token is required.", Err: err}
}

// badRequest returns the error for a request that is invalid whatever its token.
func badRequest(description string, err error) *Error {
	return &Error{Status: http.StatusBadRequest, Code: codeInvalidRequest, Description: description, Err: err}
}

// invalidToken returns the error for an invalid token. Most defects have the same description, so that a forger does not learn
// how far verification got. Two causes are disclosed: expiration, because clients react to it, and a wrong claim of another
// issuer, because that is a configuration error. Both are checked after the signature, except for the iss of an unknown issuer.
func invalidToken(err error) *Error {
	return &Error{Status: http.StatusUnauthorized, Code: codeInvalidToken, Description: describeError(err), Err: err}
}

// describeError returns the description for the client.
func describeError(err error) string {
	claim, ok := errors.AsType[*ClaimError](err)
	switch {
	case errors.Is(err, ErrExpired):
		return "The access token has expired."
	case ok && claim.Found == "":
		return "The access token lacks " + claim.Claim + "."
	case ok:
		return "The access token's " + claim.Claim + " is not accepted here."
	}
	return "The access token is invalid."
}

// InsufficientScope returns the 403 error for a request that the scopes of a valid token do not allow (RFC 6750 §3.1).
func InsufficientScope(description string, err error) *Error {
	return &Error{Status: http.StatusForbidden, Code: codeInsufficientScope, Description: description, Err: err}
}

// WithScope adds scopes, each of which would allow the request, and returns e.
func (e *Error) WithScope(scope string) *Error {
	e.Scope = scope
	return e
}

// HolderRemoved returns the error for a valid token of a user or client that no longer exists.
func HolderRemoved() *Error { return invalidToken(errHolderRemoved) }

// VerificationUnavailable returns the 503 error for a token that the caller could not verify.
func VerificationUnavailable(err error) *Error {
	return verificationUnavailable(fmt.Errorf("%w: %w", ErrUnavailable, err))
}

// verificationUnavailable returns the error for a token that could not be verified. Accepting the token would turn a broken
// store into a bypass (CVE-2020-15223).
func verificationUnavailable(err error) *Error {
	rejection := &Error{
		Status:      http.StatusServiceUnavailable,
		Description: "The access token cannot be verified right now.",
		Err:         err,
	}
	if waitErr, ok := errors.AsType[*WaitError](err); ok {
		rejection.Wait = waitErr.Wait
	}
	return rejection
}

// StepUp is a requirement for the sign-in (RFC 9470). The zero value requires nothing.
type StepUp struct {
	// ACR are the accepted authentication context classes (acr), in order of preference. If empty, the class is not checked.
	ACR []string
	// MaxAge is the maximum time since the sign-in (auth_time). 0: no limit.
	MaxAge time.Duration
	// SatisfiesACR reports whether the token's class satisfies the required class. If nil, the classes must be equal.
	SatisfiesACR func(t *Token, requiredACR string) bool
}

// challenge returns the attributes of RFC 9470 §3. They contain the full requirement, whichever part failed.
func (s *StepUp) challenge() (attributes string) {
	if s == nil {
		return ""
	}
	if len(s.ACR) > 0 {
		attributes += ", acr_values=" + quotedString(strings.Join(s.ACR, " "))
	}
	if s.MaxAge > 0 {
		attributes += fmt.Sprintf(`, max_age="%d"`, int64(s.MaxAge.Seconds()))
	}
	return attributes
}

// WaitError means that a token cannot be verified until Wait has passed.
type WaitError struct {
	Wait   time.Duration // time until the next attempt
	Reason string        // reason for the wait
}

// Error implements error.
func (e *WaitError) Error() string { return fmt.Sprintf("%s, next attempt in %v", e.Reason, e.Wait) }

// ClaimError identifies the invalid claim of a token. The client gets only the claim's name; the found and expected values are
// for logs.
type ClaimError struct {
	// Claim is the name of the claim: iss, aud, typ, a missing claim, or a claim that an HTTP header field could not contain
	// unchanged.
	Claim string
	// Issuer is the token's iss. It is unverified if the issuer is unknown.
	Issuer string
	// Found is the claim's value, at most 200 bytes; empty if the claim is missing.
	Found string
	// Expected is the expected value; may be empty.
	Expected string
	// Err is the cause.
	Err error
}

// Error implements error.
func (e *ClaimError) Error() string {
	return fmt.Sprintf("%v: claim %s of token from issuer %q is %q, expected %s", e.Err, e.Claim, e.Issuer, e.Found, e.Expected)
}

// Unwrap returns the cause.
func (e *ClaimError) Unwrap() error { return e.Err }

// maxFoundSize is the maximum size of [ClaimError.Found] in bytes.
const maxFoundSize = 200

func newClaimError(claim, issuer, found, expected string, cause error) *ClaimError {
	return &ClaimError{claim, truncateFound(issuer), truncateFound(found), expected, cause}
}

func truncateFound(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), maxFoundSize)], "")
}

// Check returns an [ErrStepUp] error (401) if the token's sign-in does not meet the requirement, or if the required acr or
// auth_time is missing.
func (s *StepUp) Check(t *Token, now time.Time) error {
	var unmet []string
	if len(s.ACR) > 0 && !s.satisfiesACR(t) {
		unmet = append(unmet, "a stronger sign-in")
	}
	if s.MaxAge > 0 && !s.isRecent(t, now) {
		unmet = append(unmet, "a more recent sign-in")
	}
	if len(unmet) == 0 {
		return nil
	}
	return &Error{
		Status: http.StatusUnauthorized, Code: codeStepUp, StepUp: s, Err: ErrStepUp,
		Description: "This requires " + strings.Join(unmet, " and ") + ".",
	}
}

func (s *StepUp) satisfiesACR(t *Token) bool {
	return t.ACR != "" && slices.ContainsFunc(s.ACR, func(requiredACR string) bool {
		return t.ACR == requiredACR || s.SatisfiesACR != nil && s.SatisfiesACR(t, requiredACR)
	})
}

// isRecent reports whether the sign-in was within the maximum age. A sign-in in the future is implausible, so it is not recent.
func (s *StepUp) isRecent(t *Token, now time.Time) bool {
	age := now.Sub(t.AuthTime)
	return !t.AuthTime.IsZero() && age <= s.MaxAge && age >= -defaultLeeway
}
