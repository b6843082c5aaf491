package oauth2

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
)

const (
	// MaxParameter bounds a parameter, in bytes.
	MaxParameter = 8 << 10

	// maxQuery bounds a query, in bytes: an authorization request, sealed, must fit into
	// the address of the sign-in page, and Caddy accepts 16 KiB of headers.
	maxQuery = 10 << 10

	maxBody = 64 << 10 // bytes
)

// errLargeBody has the status of RFC 9126 §2.3.
var errLargeBody = &Error{Code: "invalid_request", Description: "the body is larger than 64 KiB", Status: http.StatusRequestEntityTooLarge}

// errEscape replaces the error of net/url, which quotes the input.
var errEscape = errors.New("a % must be followed by two hexadecimal digits")

// Parameters are those of one request. They may not be repeated, but for resource (RFC 8707
// §2), and one without a value counts as omitted (RFC 6749 §3.1, §3.2).
type Parameters url.Values

// Get returns a parameter, or "" if it was omitted.
func (p Parameters) Get(name string) string { return url.Values(p).Get(name) }

// Keep writes a query of some parameters, in ASCII.
func (p Parameters) Keep(names ...string) string {
	kept := url.Values{}
	for _, name := range names {
		if value := p.Get(name); value != "" {
			kept.Set(name, value)
		}
	}
	return kept.Encode()
}

// Check refuses repeated parameters, which others may read differently, and long ones,
// unless this server sealed them.
func (p Parameters) Check(sealed ...string) error {
	for name, values := range p {
		differ := slices.ContainsFunc(values, func(value string) bool { return value != values[0] })
		switch long := len(name) > MaxParameter || len(values[0]) > MaxParameter; {
		case name == "resource" && differ:
			return &Error{Code: "invalid_target", Description: "a token is for one resource"}
		case name != "resource" && len(values) > 1:
			return InvalidRequest("a parameter is there more than once")
		case long && !slices.Contains(sealed, name):
			return InvalidRequest("a parameter is longer than 8 KiB")
		}
	}
	return nil
}

// parseForm accepts semicolons, which a state may hold and net/url refuses.
func parseForm(text string) (url.Values, error) {
	return url.ParseQuery(strings.ReplaceAll(text, ";", "%3B"))
}

// QueryParameters reads and checks a query. Beside an error it returns what it could read,
// so that the error can be sent to the redirect URI.
func QueryParameters(query string) (Parameters, error) {
	p, err := ReadQuery(query)
	switch {
	case err != nil:
		return p, err
	case len(query) > maxQuery:
		return p, InvalidRequest("the query is longer than 10 KiB")
	}
	return p, p.Check()
}

// ReadQuery reads a query without further checks.
func ReadQuery(query string) (Parameters, error) {
	values, err := parseForm(query)
	if err != nil {
		err = &Error{Code: "invalid_request", Description: "the query is malformed", Err: errEscape}
	}
	return Parameters(values), err
}

// FormParameters reads and checks a form.
func FormParameters(w http.ResponseWriter, r *http.Request) (Parameters, error) {
	p, err := ReadForm(w, r)
	if err != nil {
		return nil, err
	}
	return p, p.Check()
}

// ReadForm reads the body alone: secrets must not be in the query (RFC 6749 §2.3.1).
func ReadForm(w http.ResponseWriter, r *http.Request) (Parameters, error) {
	if !IsForm(r) {
		return nil, InvalidRequest("the body must be application/x-www-form-urlencoded")
	}
	body, err := ReadBody(w, r)
	if err != nil {
		return nil, err
	}
	values, err := parseForm(string(body))
	if err != nil {
		return nil, &Error{Code: "invalid_request", Description: "the form is malformed", Err: errEscape}
	}
	return Parameters(values), nil
}

// ReadBody reads up to 64 KiB. The server bounds the time.
func ReadBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	switch {
	case errors.As(err, new(*http.MaxBytesError)):
		return nil, errLargeBody
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, &Error{Code: "invalid_request", Description: "the body came too slowly", Status: http.StatusRequestTimeout, Err: err}
	case err != nil:
		return nil, &Error{Code: "invalid_request", Description: "the body could not be read whole", Err: err}
	}
	return body, nil
}

// IsForm reports whether the body of a request is a form.
func IsForm(r *http.Request) bool {
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return kind == "application/x-www-form-urlencoded"
}
