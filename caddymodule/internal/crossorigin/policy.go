// Package crossorigin implements the CORS policy of all endpoints (Fetch §3.2): which origins' scripts may call them and read
// their responses. It does not depend on Caddy, so that the authorization server and the handlers can share it.
package crossorigin

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/rs/cors"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/httporigin"
)

// allowedMethods are allowed at every endpoint. If an endpoint does not support the method, scripts can read its 405 response.
var allowedMethods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"}

// exposedHeaders are the response headers that scripts may read in addition to safelisted headers such as Last-Modified and
// Content-Type (Fetch §4.10).
var exposedHeaders = []string{
	"Www-Authenticate", "Location", "Content-Location", "Link", "Etag", "Last-Modified", "Date", "Age", "Cache-Status", "Retry-After", "X-Progress",
	"Ratelimit", "Ratelimit-Policy", "X-Request-Id", "X-Correlation-Id",
}

// maxRequestHeaders is the maximum size of Access-Control-Request-Headers in bytes. Preflight responses repeat this header.
const maxRequestHeaders = 4 << 10

const (
	headerAllowOrigin    = "Access-Control-Allow-Origin"
	headerExposeHeaders  = "Access-Control-Expose-Headers"
	headerRequestHeaders = "Access-Control-Request-Headers"
)

// Policy allows scripts of some origins to call an endpoint. Policies differ only in their origins. The response to a preflight
// allows every request header listed in the preflight, because browsers and tracing tools add headers such as traceparent, and
// requests without CORS can contain any header anyway. Credentials are never allowed. Therefore, a script cannot use the
// cookies or client certificate of the browser, only its own bearer token or client secret. Endpoints that rely on cookies must
// not have a Policy. A nil Policy leaves CORS to the next handler.
type Policy struct {
	isPublic     bool // every origin is allowed by a static header, so that caches do not need Vary
	preflight    *cors.Cors
	allowsOrigin func(origin string) bool // not used if isPublic is set
}

// Public allows every origin. It is for documents that do not require a token, and for endpoints that require a token or secret
// that other sites do not have.
var Public = &Policy{isPublic: true, preflight: cors.New(cors.Options{
	AllowedMethods: allowedMethods, AllowedHeaders: []string{"*"}, MaxAge: httporigin.PreflightMaxAge,
})}

// NewRestricted returns a policy that allows the origins for which allows returns true. allows is called with the received
// Origin, which is not empty.
func NewRestricted(allows func(origin string) bool) *Policy {
	return &Policy{allowsOrigin: allows, preflight: cors.New(cors.Options{
		AllowedMethods: allowedMethods, AllowedHeaders: []string{"*"}, MaxAge: httporigin.PreflightMaxAge,
		AllowOriginFunc: func(origin string) bool { return origin != "" && allows(origin) },
	})}
}

// HandlePreflight responds to preflight requests and reports whether the request was one. For other requests, it returns a
// writer that sets the CORS headers of the response, regardless of its status, and drops those set by later handlers.
func (p *Policy) HandlePreflight(w http.ResponseWriter, r *http.Request) (http.ResponseWriter, bool) {
	if p == nil {
		return w, false
	}
	if httporigin.IsPreflight(r) {
		if !areHeaderNames(r.Header[headerRequestHeaders]) {
			w.WriteHeader(http.StatusBadRequest)
			return w, true
		}
		p.preflight.HandlerFunc(w, r)
		return w, true
	}
	origin := r.Header.Get("Origin")
	switch {
	case p.isPublic:
		origin = "*"
	case origin == "":
		w.Header().Add("Vary", "Origin")
		return w, false
	case !p.allowsOrigin(origin):
		origin = ""
	}
	c := &corsWriter{ResponseWriter: w, origin: origin}
	c.setHeaders() // for outer error handlers, which write to the underlying writer
	return c, false
}

// areHeaderNames reports whether each value is a list of tokens (RFC 9110 §5.6.2), as required for
// Access-Control-Request-Headers.
func areHeaderNames(values []string) bool {
	list := strings.Join(values, ",")
	if len(list) > maxRequestHeaders {
		return false
	}
	for name := range strings.SplitSeq(list, ",") {
		if strings.ContainsFunc(strings.Trim(name, " \t"), isNonTokenRune) {
			return false
		}
	}
	return true
}

func isNonTokenRune(r rune) bool {
	isAlphanumeric := r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z'
	return !isAlphanumeric && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
}

// corsWriter replaces CORS headers of later handlers, such as a FHIR server, because browsers reject duplicate headers.
type corsWriter struct {
	http.ResponseWriter
	origin         string // value of Access-Control-Allow-Origin; "" if no script may read the response
	headersWritten bool
}

func (w *corsWriter) setHeaders() {
	h := w.Header()
	for name := range h {
		if strings.HasPrefix(name, "Access-Control-") {
			delete(h, name)
		}
	}
	if w.origin != "*" && !strings.Contains(strings.ToLower(strings.Join(h["Vary"], ",")), "origin") {
		h.Add("Vary", "Origin")
	}
	if w.origin != "" {
		h.Set(headerAllowOrigin, w.origin)
		h.Set(headerExposeHeaders, strings.Join(exposedHeaders, ", "))
	}
}

// Unwrap supports [http.ResponseController].
func (w *corsWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *corsWriter) WriteHeader(status int) {
	if status >= http.StatusOK || status == http.StatusSwitchingProtocols { // other informational responses precede the final one
		w.headersWritten = true
		w.setHeaders()
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *corsWriter) Write(body []byte) (int, error) {
	w.ensureHeaders()
	return w.ResponseWriter.Write(body)
}

// ReadFrom implements [io.ReaderFrom], so that files are sent without copying.
func (w *corsWriter) ReadFrom(body io.Reader) (int64, error) {
	w.ensureHeaders()
	return io.Copy(w.ResponseWriter, body)
}

func (w *corsWriter) ensureHeaders() {
	if !w.headersWritten {
		w.WriteHeader(http.StatusOK)
	}
}

var (
	_ http.ResponseWriter = (*corsWriter)(nil)
	_ io.ReaderFrom       = (*corsWriter)(nil)
)

// Words of a cors option other than origins.
const (
	keywordAll     = "*"
	KeywordClients = "clients"
)

var errNoClients = errors.New("cors clients requires the fhir global option, which configures the clients")

// clientOrigins determines the origins of the fhir app's clients.
type clientOrigins interface {
	// AllowsOrigin reports whether a client has a redirect URI with the origin.
	AllowsOrigin(origin string) bool
}

// New returns the policy for the words of a cors option, or nil if there are none. of is nil if there is no fhir app.
func New(words []string, of clientOrigins) (*Policy, error) {
	switch {
	case len(words) == 0:
		return nil, nil
	case slices.Contains(words, keywordAll):
		return Public, nil
	case of == nil:
		if err := CheckClients(words); err != nil {
			return nil, err
		}
	}
	for _, word := range words {
		if err := CheckWord(word); err != nil {
			return nil, err
		}
	}
	clients := slices.Contains(words, KeywordClients)
	return NewRestricted(func(origin string) bool {
		return origin != KeywordClients && (slices.Contains(words, origin) || clients && of.AllowsOrigin(origin))
	}), nil
}

// CheckClients rejects the word clients if there is no app that defines clients.
func CheckClients(words []string) error {
	if slices.Contains(words, KeywordClients) {
		return errNoClients
	}
	return nil
}

// CheckWord checks a word of a cors option. An origin that browsers never send is an error, because it would never match.
func CheckWord(word string) error {
	if word == keywordAll || word == KeywordClients {
		return nil
	}
	u, err := url.Parse(word)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.Host != strings.ToLower(u.Host) || strings.Contains(u.Host, "*") || word != u.Scheme+"://"+u.Host ||
		u.Port() == map[string]string{"https": "443", "http": "80"}[u.Scheme] {
		return fmt.Errorf("invalid cors value %q: use %s, %s or an origin such as https://app.example.org, in lower case, without a path and without the default port", word, KeywordClients, keywordAll)
	}
	return nil
}
