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
	// errHopByHop: the Connection header names a header that contains an identity.
	errHopByHop = errors.New("protected header listed as hop-by-hop")
	// ErrAmbiguousPath: servers may interpret the path differently.
	ErrAmbiguousPath = errors.New("ambiguous request path")
	// errHolderRemoved: the token's user or client no longer exists.
	errHolderRemoved = errors.New("user or client no longer exists")
	// errMalformedToken: not a JWS in compact form with a JSON header and claims, or contradictory claims.
	errMalformedToken = errors.New("malformed token")
	// errTokenType: the typ header is not at+jwt (RFC 9068 §4), as in an ID token, or the claims identify another kind of token.
	errTokenType = errors.New("token is not an access token")
	// errAlgorithm: the alg header does not match the key, or is not allowed.
	errAlgorithm = errors.New("signature algorithm not allowed")
	// errHeaderParameter: the header contains a parameter that is not accepted.
	errHeaderParameter = errors.New("token header parameter not accepted")
	// ErrUnknownKey: no key has this kid. A [KeySet] returns it too.
	ErrUnknownKey = errors.New("unknown signing key")
	// ErrInvalidSignature: the key does not verify the signature.
	ErrInvalidSignature = errors.New("invalid token signature")
	// errUnexpectedIssuer: the iss claim is not the expected issuer.
	errUnexpectedIssuer = errors.New("unexpected token issuer")
	// errUnexpectedAudience: the aud claim does not contain the audience.
	errUnexpectedAudience = errors.New("unexpected token audience")
	// ErrExpired: the exp claim is in the past.
	ErrExpired = errors.New("token expired")
	// errNotYetValid: the nbf claim is in the future.
	errNotYetValid = errors.New("token not yet valid")
	// errInvalidIssuedAt: the iat claim is in the future, or after exp.
	errInvalidIssuedAt = errors.New("iat is in the future or after exp")
	// errMissingClaim: a required claim (RFC 9068 §2.2) is missing.
	errMissingClaim = errors.New("required token claim missing")
	// errSenderConstrained: the token is bound to a key of the client (RFC 8705, RFC 9449), and must not be accepted as a
	// bearer token.
	errSenderConstrained = errors.New("token is sender-constrained and not accepted as a bearer token")
	// errRevokedToken: the token was revoked.
	errRevokedToken = errors.New("token revoked")
	// errInactiveToken: the introspection response reports the token as not active (RFC 7662 §2.2).
	errInactiveToken = errors.New("token not active")
	// ErrStepUp: the person must sign in more strongly, or again (RFC 9470).
	ErrStepUp = errors.New("insufficient user authentication")
	// ErrUnavailable: keys, revocations or introspection are unavailable.
	ErrUnavailable = errors.New("token verification unavailable")
)

// Error codes of RFC 6750 §3.1.
const (
	codeInvalidRequest = "invalid_request"
	codeInvalidToken   = "invalid_token"

	codeInsufficientScope = "insufficient_scope"
	codeStepUp            = "insufficient_user_authentication" // RFC 9470 §3
)

// Error is a rejection. Its Error method is for logs. Its fields and [Error.Challenge] are for the client, and contain no
// unvalidated input.
type Error struct {
	// Status is the HTTP status: 400, 401, 403, 404, 405, 406, 409, 412, 413, 415, 422, 502 or 503.
	Status int
	// Code is the error code of RFC 6750 §3.1. Empty if no token was sent, and with 503.
	Code string
	// Description is a sentence for the client's developer.
	Description string
	// Scope contains the missing scopes, separated by spaces. Any single one suffices. Empty if no scope would help.
	Scope string
	// StepUp is the required sign-in. Nil unless the sign-in is the cause of the rejection.
	StepUp *StepUp
	// Wait is the time to wait before a retry; 0 if unknown.
	Wait time.Duration
	// Err is the cause, which wraps one of the Err… values.
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

// OnlyJSON makes the OperationOutcome of a rejection JSON, even if the request prefers XML, because fhir_bearer does not
// negotiate formats.
func (*Error) OnlyJSON() {}

// IssueType returns the code for OperationOutcome.issue.code (http://hl7.org/fhir/issue-type).
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

// Diagnostics returns the text for OperationOutcome.issue.diagnostics.
func (e *Error) Diagnostics() string { return e.Description }

// Challenge returns the value for WWW-Authenticate (RFC 6750 §3). It is empty if another token would not help: with any
// status but 401, 403, and 400 for a token sent in a wrong way. It contains no error code if the request had no token
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

// Allow returns the value for Allow, which must accompany 405 (RFC 9110 §15.5.6): the methods of FHIR R4. It is empty with
// any other status.
func (e *Error) Allow() string {
	if e.Status != http.StatusMethodNotAllowed {
		return ""
	}
	return "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"
}

// RetryAfter returns the value for Retry-After (RFC 9110 §10.2.3), in whole seconds; empty if unknown.
func (e *Error) RetryAfter() string {
	if e.Wait <= 0 {
		return ""
	}
	return strconv.Itoa(int(math.Ceil(e.Wait.Seconds())))
}

// quotedString returns s as a quoted-string. It drops the characters that RFC 6750 §3 does not allow in its attributes, because
// they could end the string or the header.
func quotedString(s string) string {
	return `"` + strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' || r == '"' || r == '\\' {
			return -1
		}
		return r
	}, s) + `"`
}

// missingToken rejects a request without a bearer token.
func missingToken(err error) *Error {
	return &Error{Status: http.StatusUnauthorized, Description: "An access token is required.", Err: err}
}

// badRequest rejects a request that is invalid with any token.
func badRequest(description string, err error) *Error {
	return &Error{Status: http.StatusBadRequest, Code: codeInvalidRequest, Description: description, Err: err}
}

// invalidToken rejects a token. Most defects have the same description, so that a forger does not learn how far
// verification got. Two causes are disclosed: expiry, since clients act on it, and a wrong claim of another issuer, since
// that is a configuration error. Both are checked after the signature, except for the iss of an unknown issuer.
func invalidToken(err error) *Error {
	return &Error{Status: http.StatusUnauthorized, Code: codeInvalidToken, Description: describeError(err), Err: err}
}

// describeError returns the sentence for the client.
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

// InsufficientScope rejects a request that the scopes of a valid token do not allow, with 403 (RFC 6750 §3.1).
func InsufficientScope(description string, err error) *Error {
	return &Error{Status: http.StatusForbidden, Code: codeInsufficientScope, Description: description, Err: err}
}

// WithScope adds scopes that would each allow the request, and returns the rejection.
func (e *Error) WithScope(scope string) *Error {
	e.Scope = scope
	return e
}

// HolderRemoved rejects a valid token of a user or client that no longer exists.
func HolderRemoved() *Error { return invalidToken(errHolderRemoved) }

// VerificationUnavailable rejects a token that the caller could not check.
func VerificationUnavailable(err error) *Error {
	return verificationUnavailable(fmt.Errorf("%w: %w", ErrUnavailable, err))
}

// verificationUnavailable rejects a token that could not be checked. Accepting it would turn a broken store into a bypass
// (CVE-2020-15223).
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

// StepUp is a requirement on the sign-in (RFC 9470). The zero value requires nothing.
type StepUp struct {
	// ACR are the sufficient authentication context classes (acr), the preferred one first. Empty: any or no class.
	ACR []string
	// MaxAge is the maximum time since the sign-in (auth_time). 0: no limit.
	MaxAge time.Duration
	// SatisfiesACR reports whether the token's class satisfies another, required class. Nil: classes must be equal.
	SatisfiesACR func(t *Token, requiredACR string) bool
}

// challenge returns the attributes of RFC 9470 §3: the whole requirement, whichever part of it failed.
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

// WaitError rejects a token that cannot be verified before some time has passed.
type WaitError struct {
	Wait   time.Duration // time until a retry
	Reason string        // cause of the wait
}

// Error implements error.
func (e *WaitError) Error() string { return fmt.Sprintf("%s, next attempt in %v", e.Reason, e.Wait) }

// ClaimError identifies the invalid claim of a token. The client gets only the claim's name; the found and expected values
// are for the log.
type ClaimError struct {
	// Claim is the name of the claim: iss, aud, typ, a missing claim, or one that no HTTP header field would carry
	// unchanged.
	Claim string
	// Issuer is the iss of the token. It is unverified if the issuer is unknown.
	Issuer string
	// Found is the claim's value, at most 200 bytes; empty if the claim is missing.
	Found string
	// Expected is the expected value.
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

// maxFoundSize is the maximum size in bytes of a claim in an error.
const maxFoundSize = 200

func newClaimError(claim, issuer, found, expected string, cause error) *ClaimError {
	return &ClaimError{claim, truncateFound(issuer), truncateFound(found), expected, cause}
}

func truncateFound(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), maxFoundSize)], "")
}

// Check rejects a token if its sign-in does not meet the requirement, or if it does not contain acr or auth_time (401,
// [ErrStepUp]).
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

// isRecent reports whether the sign-in was within the maximum age. An auth_time in the future is implausible, so it does
// not count as recent.
func (s *StepUp) isRecent(t *Token, now time.Time) bool {
	age := now.Sub(t.AuthTime)
	return !t.AuthTime.IsZero() && age <= s.MaxAge && age >= -defaultLeeway
}
