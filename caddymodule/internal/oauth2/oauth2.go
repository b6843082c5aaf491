// Package oauth2 contains the parts shared by all OAuth 2.0 endpoints. It does not depend on clients, people or tokens.
package oauth2

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"
)

const (
	// MaxParameterSize is the maximum size of a parameter value in bytes.
	MaxParameterSize = 8 << 10

	// maxQuerySize is the maximum size of a query in bytes. A sealed authorization request must fit into the URL of the sign-in
	// page, and Caddy accepts 16 KiB of headers.
	maxQuerySize = 10 << 10

	maxBodySize = 64 << 10 // maximum size in bytes
)

// errLargeBody is returned for a body above maxBodySize; its status is specified in RFC 9126 §2.3.
var errLargeBody = &Error{Code: "invalid_request", Description: "the request body exceeds 64 KiB", Status: http.StatusRequestEntityTooLarge}

// errEscape replaces the error from net/url, which contains the input.
var errEscape = errors.New("invalid percent-encoding: % must be followed by two hexadecimal digits")

// Parameters are the parameters of a request. Only resource may be repeated (RFC 8707 §2). A parameter without a value is
// treated as omitted (RFC 6749 §3.1, §3.2).
type Parameters url.Values

// Get returns the value of a parameter, or "" if it is omitted.
func (p Parameters) Get(name string) string { return url.Values(p).Get(name) }

// EncodeSelected returns an ASCII query with only the named parameters.
func (p Parameters) EncodeSelected(names ...string) string {
	selected := url.Values{}
	for _, name := range names {
		if value := p.Get(name); value != "" {
			selected.Set(name, value)
		}
	}
	return selected.Encode()
}

// Check returns an error for repeated parameters, which other servers may interpret differently, and for parameters that are
// too long, except those that this server has sealed.
func (p Parameters) Check(sealed ...string) error {
	for name, values := range p {
		isRepeated := slices.ContainsFunc(values, func(value string) bool { return value != values[0] })
		switch isTooLong := len(name) > MaxParameterSize || len(values[0]) > MaxParameterSize; {
		case name == "resource" && isRepeated:
			return &Error{Code: "invalid_target", Description: "only one resource can be requested"}
		case name != "resource" && len(values) > 1:
			return InvalidRequest("a parameter is repeated")
		case isTooLong && !slices.Contains(sealed, name):
			return InvalidRequest("a parameter exceeds 8 KiB")
		}
	}
	return nil
}

// parseValues parses a query or form. It accepts semicolons, which a state may contain but net/url rejects.
func parseValues(text string) (url.Values, error) {
	return url.ParseQuery(strings.ReplaceAll(text, ";", "%3B"))
}

// ReadCheckedQuery parses and checks a query. If it returns an error, it also returns the parameters that it could parse, so
// that the error can be sent to the redirect URI.
func ReadCheckedQuery(query string) (Parameters, error) {
	p, err := ReadQuery(query)
	switch {
	case err != nil:
		return p, err
	case len(query) > maxQuerySize:
		return p, InvalidRequest("the query exceeds 10 KiB")
	}
	return p, p.Check()
}

// ReadQuery parses a query without the checks of [Parameters.Check].
func ReadQuery(query string) (Parameters, error) {
	values, err := parseValues(query)
	if err != nil {
		err = &Error{Code: "invalid_request", Description: "the query is malformed", Err: errEscape}
	}
	return Parameters(values), err
}

// ReadCheckedForm parses and checks a form.
func ReadCheckedForm(w http.ResponseWriter, r *http.Request) (Parameters, error) {
	p, err := ReadForm(w, r)
	if err != nil {
		return nil, err
	}
	return p, p.Check()
}

// ReadForm parses only the request body, because secrets must not be in the query (RFC 6749 §2.3.1).
func ReadForm(w http.ResponseWriter, r *http.Request) (Parameters, error) {
	if !IsForm(r) {
		return nil, InvalidRequest("the Content-Type must be application/x-www-form-urlencoded")
	}
	body, err := ReadBody(w, r)
	if err != nil {
		return nil, err
	}
	values, err := parseValues(string(body))
	if err != nil {
		return nil, &Error{Code: "invalid_request", Description: "the form is malformed", Err: errEscape}
	}
	return Parameters(values), nil
}

// ReadBody reads a request body of at most 64 KiB. The HTTP server limits the time.
func ReadBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBodySize))
	switch {
	case errors.As(err, new(*http.MaxBytesError)):
		return nil, errLargeBody
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, &Error{Code: "invalid_request", Description: "the request body was sent too slowly", Status: http.StatusRequestTimeout, Err: err}
	case err != nil:
		return nil, &Error{Code: "invalid_request", Description: "reading the request body failed", Err: err}
	}
	return body, nil
}

// IsForm reports whether the Content-Type of a request is that of a form.
func IsForm(r *http.Request) bool {
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return kind == "application/x-www-form-urlencoded"
}

// Error is an OAuth 2.0 error: the response to the client and the cause for the log.
type Error struct {
	// Code is an error code of RFC 6749 §4.1.2.1 or §5.2, RFC 6750 §3.1 or OpenID Connect Core §3.1.2.6.
	Code string

	// Description explains to the client's developer how to correct the error. Endpoints return it, and error pages show it.
	// Redirects contain it only if DescribeToClient is set.
	Description string

	Status            int   // HTTP status of a direct response; default: 400
	Err               error // cause, only for the log
	IsUserCorrectable bool  // whether the person, rather than the client's developer, can correct the error
	DescribeToClient  bool  // whether the description is also sent to the redirect URI
}

// Error returns the text for logs, including the cause.
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

// InvalidRequest returns an invalid_request error (RFC 6749 §4.1.2.1, §5.2).
func InvalidRequest(description string) *Error {
	return &Error{Code: "invalid_request", Description: description}
}

// NewRestartError returns an error that the person can correct by starting again.
func NewRestartError(text string) *Error {
	return &Error{Code: "invalid_request", Description: text, IsUserCorrectable: true}
}

// InvalidGrant returns an invalid_grant error for a code or refresh token (RFC 6749 §5.2).
func InvalidGrant(description string) *Error {
	return &Error{Code: "invalid_grant", Description: description}
}

// InvalidClient returns an invalid_client error for failed client authentication (RFC 6749 §5.2).
func InvalidClient(description string) *Error {
	return &Error{Code: "invalid_client", Description: description, Status: http.StatusUnauthorized}
}

// AsError returns the [Error] in err, or a server_error without details (RFC 6749 §4.1.2.1).
func AsError(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return &Error{Code: "server_error", Status: http.StatusServiceUnavailable, Err: err}
}

// InvalidScope returns an invalid_scope error. Its description does not contain the scope, which may contain characters that
// are not allowed in an error_description (RFC 6749 §5.2).
func InvalidScope(err error) *Error {
	return &Error{Code: "invalid_scope", Description: "the scope is malformed or exceeds the client's allowed scopes", Err: err}
}

// IsValidChallenge reports whether a text has the format of an S256 code_challenge (RFC 7636 §4.2).
func IsValidChallenge(challenge string) bool {
	b, err := base64.RawURLEncoding.DecodeString(challenge)
	return err == nil && len(b) == sha256.Size
}

// CheckVerifier compares a code_verifier with the code_challenge (RFC 7636 §4.6). If there is a verifier but no challenge, an
// attacker may have removed the challenge (RFC 9700 §4.8.2), so CheckVerifier returns an error.
func CheckVerifier(challenge, verifier string) error {
	switch {
	case challenge == "" && verifier == "":
		return nil
	case challenge == "":
		return InvalidGrant("code_verifier is not allowed: the authorization request had no code_challenge")
	case !verifierPattern.MatchString(verifier):
		return InvalidGrant("code_verifier must have 43 to 128 unreserved characters")
	}
	sum := sha256.Sum256([]byte(verifier))
	expected := base64.RawURLEncoding.EncodeToString(sum[:])
	if subtle.ConstantTimeCompare([]byte(expected), []byte(challenge)) != 1 {
		return InvalidGrant("code_verifier does not match the code_challenge")
	}
	return nil
}

// verifierPattern is the syntax of a code_verifier (RFC 7636 §4.1).
var verifierPattern = regexp.MustCompile(`^[A-Za-z0-9._~-]{43,128}$`)

// The authentication context classes (acr) of this server, from weakest to strongest. Each class includes the weaker ones.
const (
	ACRSingleFactor      = "sfa" // one factor
	ACRMultiFactor       = "mfa" // two factors, local or confirmed by an identity provider
	ACRPhishingResistant = "phr" // phishing-resistant: a local passkey (OpenID Connect EAP ACR Values 1.0)
)

// ACRValues lists all classes, from weakest to strongest.
var ACRValues = []string{ACRSingleFactor, ACRMultiFactor, ACRPhishingResistant}

// DeriveACR returns the class of a sign-in from its amr (RFC 8176). A hardware key reported by an identity provider does not
// make a sign-in phishing-resistant, because this server cannot verify it.
func DeriveACR(amr []string, provider string) string {
	key := slices.Contains(amr, "hwk") || slices.Contains(amr, "swk")
	switch {
	case !slices.Contains(amr, "mfa"):
		return ACRSingleFactor
	case key && provider == "":
		return ACRPhishingResistant
	}
	return ACRMultiFactor
}

// MeetsACR reports whether a class includes the required class, which is one of [ACRValues], or "" if any class is sufficient.
func MeetsACR(class, required string) bool {
	return slices.Index(ACRValues, class) >= slices.Index(ACRValues, required)
}

// RandomToken returns 256 random bits in base64url (RFC 6749 §10.10 requires 128 bits), which stays intact if a client does not
// percent-encode it. It does not begin with "-", because commands would interpret such an id as a flag.
func RandomToken() string {
	for {
		if token := base64.RawURLEncoding.EncodeToString(RandomBytes(32)); token[0] != '-' {
			return token
		}
	}
}

// RandomBytes returns n random bytes.
func RandomBytes(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails; see crypto/rand
	return b
}

// CheckLifetime returns an error if a configured lifetime is less than a second or more than maximum.
func CheckLifetime(name string, lifetime, maximum time.Duration) error {
	if lifetime < time.Second || lifetime > maximum {
		return fmt.Errorf("invalid %s %s: it must be between 1s and %s", name, formatDuration(lifetime), formatDuration(maximum))
	}
	return nil
}

// formatDuration formats a duration as in a Caddyfile, such as 30d, 24h or 10m.
func formatDuration(d time.Duration) string {
	const day = 24 * time.Hour
	if d > day && d%day == 0 {
		return fmt.Sprintf("%dd", d/day)
	}
	text := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zero) {
			text = text[:len(text)-2]
		}
	}
	return text
}

// Generation distinguishes successive clients or users with the same name. It increases each time the name is added to the
// store. In the configuration it is 0, so that entries keep their grants when they are moved to the store and back.
type Generation int64

// DiffersFrom reports whether grants of one generation do not belong to the other.
func (g Generation) DiffersFrom(other Generation) bool { return g != 0 && other != 0 && g != other }

// ProtectedResourcePath is the path of a protected resource's metadata. The path of the resource is appended (RFC 9728 §3.1).
const ProtectedResourcePath = "/.well-known/oauth-protected-resource"

// retryAfterSeconds is how long clients should wait for an unavailable store, in seconds.
const retryAfterSeconds = "5"

// SetRetryAfter sets Retry-After if the status is 503 (RFC 9110 §15.6.4) and the header is not already set.
func SetRetryAfter(h http.Header, status int) {
	if status == http.StatusServiceUnavailable && h.Get("Retry-After") == "" {
		h.Set("Retry-After", retryAfterSeconds)
	}
}
