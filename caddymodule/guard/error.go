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

// The causes of a refusal, for logs and tests. The client learns no more of them than the fields of [Error] say.
var (
	// ErrNoToken: the request has no bearer token (RFC 6750 §3.1).
	ErrNoToken = errors.New("no bearer token")
	// errRequest: the token is not sent as RFC 6750 §2.1 requires.
	errRequest = errors.New("bearer token sent in a wrong way")
	// errHopByHop: the Connection header names a header that carries an identity.
	errHopByHop = errors.New("hop-by-hop header names an identity header")
	// ErrPath: servers may read the path differently.
	ErrPath = errors.New("ambiguous path")
	// errWithdrawn: the token's user or client is no longer known.
	errWithdrawn = errors.New("user or client withdrawn")
	// errMalformed: not a JWS in compact form with a JSON header and claims, or claims that contradict each other.
	errMalformed = errors.New("malformed token")
	// errType: the typ header is not at+jwt (RFC 9068 §4), as in an ID token, or the claims are those of another kind
	// of token.
	errType = errors.New("token is not an access token")
	// errAlgorithm: the alg header is not the key's, or not allowed.
	errAlgorithm = errors.New("signature algorithm not allowed")
	// errHeader: the header holds a parameter that is not accepted.
	errHeader = errors.New("header parameter not accepted")
	// ErrUnknownKey: no key has this kid. A [KeySet] returns it too.
	ErrUnknownKey = errors.New("unknown key")
	// ErrSignature: the signature is not the key's.
	ErrSignature = errors.New("wrong signature")
	// errIssuer: the iss claim is another issuer's.
	errIssuer = errors.New("wrong issuer")
	// errAudience: the aud claim does not hold the audience.
	errAudience = errors.New("wrong audience")
	// ErrExpired: the exp claim is past.
	ErrExpired = errors.New("token expired")
	// errNotYetValid: the nbf claim is to come.
	errNotYetValid = errors.New("token not yet valid")
	// errIssuedAt: the iat claim is to come, or after exp.
	errIssuedAt = errors.New("implausible time of issue")
	// errMissingClaim: a claim that is required (RFC 9068 §2.2) is missing.
	errMissingClaim = errors.New("required claim missing")
	// errBound: the token is bound to a key of its client's (RFC 8705, RFC 9449), and must not be accepted from the
	// mere bearer.
	errBound = errors.New("token is bound to a key")
	// errRevoked: the token was revoked.
	errRevoked = errors.New("token revoked")
	// errInactive: introspection says that the token is not active (RFC 7662 §2.2).
	errInactive = errors.New("token not active")
	// ErrStepUp: the person would have to sign in more strongly, or again (RFC 9470).
	ErrStepUp = errors.New("insufficient user authentication")
	// ErrUnavailable: keys, revocations or introspection cannot be asked.
	ErrUnavailable = errors.New("verification unavailable")
)

// The error codes of RFC 6750 §3.1 that are used.
const (
	codeInvalidRequest = "invalid_request"
	codeInvalidToken   = "invalid_token"

	codeInsufficientScope = "insufficient_scope"
	codeStepUp            = "insufficient_user_authentication" // RFC 9470 §3
)

// Error is a refusal. Its Error method is for logs. Its fields and [Error.Challenge] are texts without any
// input that is not checked, and meant for the client.
type Error struct {
	// Status is the HTTP status: 400, 401, 403, 404, 405, 406, 409, 412, 413, 415, 422, 502 or 503.
	Status int
	// Code is the error code of RFC 6750 §3.1. Empty if no token was sent, and with 503.
	Code string
	// Description is a sentence for the client's developer.
	Description string
	// Scope is what the token lacks: scopes of which each would do, separated by spaces. Empty if no scope would help.
	Scope string
	// StepUp is how the person would have to sign in. Nil unless that is why.
	StepUp *StepUp
	// Wait is how long to wait before trying again; 0 if unknown.
	Wait time.Duration
	// Err is the cause, which wraps one of the Err… values.
	Err error
}

// Error returns the cause, or the description if there is none.
func (e *Error) Error() string {
	if e.Err == nil {
		return e.Description
	}
	return e.Err.Error()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// OnlyJSON makes the OperationOutcome of a rejection JSON, whatever format the request asks for: fhir_bearer does not
// negotiate formats.
func (*Error) OnlyJSON() {}

// IssueType is the code for OperationOutcome.issue.code (http://hl7.org/fhir/issue-type).
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

// Diagnostics is the text for OperationOutcome.issue.diagnostics.
func (e *Error) Diagnostics() string { return e.Description }

// Challenge is the value for WWW-Authenticate (RFC 6750 §3). It is empty where another token would not help: with any
// status but 401, 403, and 400 where the token was sent in a wrong way. It has no error code if the request had no token (§3.1).
func (e *Error) Challenge(realm string) string {
	if e.Status != http.StatusUnauthorized && e.Status != http.StatusForbidden && (e.Status != http.StatusBadRequest || e.Code == "") {
		return ""
	}
	challenge := "Bearer realm=" + quoted(realm)
	if e.Code != "" {
		challenge += ", error=" + quoted(e.Code)
		challenge += ", error_description=" + quoted(e.Description)
	}
	if e.Scope != "" {
		challenge += ", scope=" + quoted(e.Scope)
	}
	return challenge + e.StepUp.challenge()
}

// Allow is the value for Allow, which must accompany 405 (RFC 9110 §15.5.6): the methods of FHIR R4. It is empty with
// any other status.
func (e *Error) Allow() string {
	if e.Status != http.StatusMethodNotAllowed {
		return ""
	}
	return "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"
}

// RetryAfter is the value for Retry-After (RFC 9110 §10.2.3), in whole seconds; empty if unknown.
func (e *Error) RetryAfter() string {
	if e.Wait <= 0 {
		return ""
	}
	return strconv.Itoa(int(math.Ceil(e.Wait.Seconds())))
}

// quoted writes s as a quoted-string. It drops characters that RFC 6750 §3 does not allow in its attributes, with
// which the text could escape from the quotes or the header.
func quoted(s string) string {
	return `"` + strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' || r == '"' || r == '\\' {
			return -1
		}
		return r
	}, s) + `"`
}

// noToken refuses a request without a bearer token.
func noToken(err error) *Error {
	return &Error{Status: http.StatusUnauthorized, Description: "An access token is required.", Err: err}
}

// badRequest refuses a request that no token would make valid.
func badRequest(description string, err error) *Error {
	return &Error{Status: http.StatusBadRequest, Code: codeInvalidRequest, Description: description, Err: err}
}

// invalidToken refuses a token. Defects look alike, so that a forger does not learn how far it got. Named are expiry, since
// clients act on it, and claims of other issuers, since somebody configured them wrongly: both are checked after the
// signature, but for an issuer that is not known at all.
func invalidToken(err error) *Error {
	return &Error{Status: http.StatusUnauthorized, Code: codeInvalidToken, Description: description(err), Err: err}
}

// description is the sentence for the client.
func description(err error) string {
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

// InsufficientScope refuses a request that a valid token's scopes do not allow, with 403 (RFC 6750 §3.1).
func InsufficientScope(description string, err error) *Error {
	return &Error{Status: http.StatusForbidden, Code: codeInsufficientScope, Description: description, Err: err}
}

// Lifted is the refusal with the scopes of which each would lift it.
func (e *Error) Lifted(scope string) *Error {
	e.Scope = scope
	return e
}

// Withdrawn refuses a valid token whose user or client is no longer known.
func Withdrawn() *Error { return invalidToken(errWithdrawn) }

// Unavailable refuses a token that the caller could not check.
func Unavailable(err error) *Error { return unavailable(fmt.Errorf("%w: %w", ErrUnavailable, err)) }

// unavailable refuses a token that could not be checked. Letting it pass would turn a broken store into a way in
// (CVE-2020-15223).
func unavailable(err error) *Error {
	refusal := &Error{
		Status:      http.StatusServiceUnavailable,
		Description: "The access token cannot be verified at present.",
		Err:         err,
	}
	if left, ok := errors.AsType[*WaitError](err); ok {
		refusal.Wait = left.Wait
	}
	return refusal
}

// StepUp is what is asked of how the person signed in (RFC 9470). The zero value asks nothing.
type StepUp struct {
	// ACR are the classes of sign-in (acr) that suffice, the preferred one first. Empty: any, or none.
	ACR []string
	// MaxAge is how long ago the person may have signed in (auth_time). 0: for any time.
	MaxAge time.Duration
	// Meets reports whether a token's class suffices where another is asked for. Nil: it must be the same.
	Meets func(t *Token, wanted string) bool
}

// challenge are the attributes of RFC 9470 §3: all that is asked, whichever part is not met.
func (s *StepUp) challenge() (attributes string) {
	if s == nil {
		return ""
	}
	if len(s.ACR) > 0 {
		attributes += ", acr_values=" + quoted(strings.Join(s.ACR, " "))
	}
	if s.MaxAge > 0 {
		attributes += fmt.Sprintf(`, max_age="%d"`, int64(s.MaxAge.Seconds()))
	}
	return attributes
}

// WaitError refuses a token that cannot be verified before some time has passed.
type WaitError struct {
	Wait time.Duration // until it may be verified
	Why  string        // it cannot be now
}

// Error implements error.
func (e *WaitError) Error() string { return fmt.Sprintf("%s, left alone for %v", e.Why, e.Wait) }

// ClaimError says which claim of a token is at fault. The client learns the claim alone; what was found and expected is
// for the log.
type ClaimError struct {
	// Claim is its name: iss, aud, typ, one that is missing, or one that no HTTP header field would carry unchanged.
	Claim string
	// Issuer is the iss of the token. Of a token by an unknown issuer it is not verified.
	Issuer string
	// Found is its value, at most 200 bytes; empty if it is missing.
	Found string
	// Expected is what it should have been.
	Expected string
	// Err is the cause.
	Err error
}

// Error implements error.
func (e *ClaimError) Error() string {
	return fmt.Sprintf("%v: %s of a token by %q is %q, expected %s", e.Err, e.Claim, e.Issuer, e.Found, e.Expected)
}

// Unwrap returns the cause.
func (e *ClaimError) Unwrap() error { return e.Err }

// maxFound bounds what is shown of a claim, in bytes.
const maxFound = 200

func newClaimError(claim, issuer, found, expected string, cause error) *ClaimError {
	return &ClaimError{claim, found200(issuer), found200(found), expected, cause}
}

func found200(text string) string { return strings.ToValidUTF8(text[:min(len(text), maxFound)], "") }

// Check refuses a token whose person did not sign in like that, or that does not say so (401, [ErrStepUp]).
func (s *StepUp) Check(t *Token, now time.Time) error {
	var lacks []string
	if len(s.ACR) > 0 && !s.meets(t) {
		lacks = append(lacks, "a stronger sign-in")
	}
	if s.MaxAge > 0 && !s.isRecent(t, now) {
		lacks = append(lacks, "a more recent sign-in")
	}
	if len(lacks) == 0 {
		return nil
	}
	return &Error{
		Status: http.StatusUnauthorized, Code: codeStepUp, StepUp: s, Err: ErrStepUp,
		Description: "This takes " + strings.Join(lacks, " and ") + ".",
	}
}

func (s *StepUp) meets(t *Token) bool {
	return t.ACR != "" && slices.ContainsFunc(s.ACR, func(wanted string) bool {
		return t.ACR == wanted || s.Meets != nil && s.Meets(t, wanted)
	})
}

// isRecent reports whether the sign-in was within the maximum age. One of the future says nothing of when it was.
func (s *StepUp) isRecent(t *Token, now time.Time) bool {
	age := now.Sub(t.AuthTime)
	return !t.AuthTime.IsZero() && age <= s.MaxAge && age >= -defaultLeeway
}
