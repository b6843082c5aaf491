package remote

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/httporigin"
	"github.com/caddy-fhir/caddy-fhir/terminology/expansion"
	"github.com/caddy-fhir/caddy-fhir/terminology/parameters"
)

// Options configures a [Server].
type Options struct {
	// Base is the FHIR base URL, such as https://tx.example/r4. Plain http is only accepted for loopback addresses. Required.
	Base string

	// AllowHTTP permits plain http for all addresses. Attackers on the network can then read and modify requests, responses and
	// credentials. Default: false.
	AllowHTTP bool

	// Timeout is the maximum duration of a request, from connecting to the end of the response. Default: 10 s.
	Timeout time.Duration

	// MaxResponseSize is the maximum size of a decompressed response in bytes. Default: 16 MiB.
	MaxResponseSize int64

	// TTL is the lifetime of responses, which all clients share. It overrides all headers except no-store. Default: 0, which
	// uses the lifetime in the headers.
	TTL time.Duration

	// Bearer is the bearer token to authenticate with (RFC 6750). Default: none.
	Bearer string

	// Username and Password are the credentials for basic authentication (RFC 7617). Default: none.
	Username, Password string

	// TLS configures certificate authorities or a client certificate. Default: Go's default configuration.
	TLS *tls.Config

	// Transport sends requests. It cannot be combined with TLS. Default: a transport of this package.
	Transport http.RoundTripper
}

// Server is a FHIR terminology server. Create it with [NewServer]. It is safe for concurrent use.
type Server struct {
	options Options
	base    *url.URL
	client  *http.Client
	backoff Backoff
}

// Default values of [Options] and [Handler].
const (
	DefaultTimeout         = 10 * time.Second
	DefaultMaxResponseSize = 16 << 20
)

// serverName is the name of every server in texts for clients, which contain no URLs.
const serverName = "the terminology server"

// NewServer returns a server without connecting to it. It returns an error for invalid options.
func NewServer(o Options) (*Server, error) {
	base, err := parseBase(o.Base, o.AllowHTTP)
	if err != nil {
		return nil, err
	}
	switch {
	case o.Transport != nil && o.TLS != nil:
		return nil, errors.New("set a transport or a TLS configuration, not both")
	case o.Bearer != "" && o.Username != "":
		return nil, errors.New("set bearer or basic credentials, not both")
	case o.Timeout < 0 || o.MaxResponseSize < 0 || o.TTL < 0:
		return nil, errors.New("timeout, lifetime and response size must not be negative")
	}
	o.Timeout, o.MaxResponseSize = cmp.Or(o.Timeout, DefaultTimeout), cmp.Or(o.MaxResponseSize, DefaultMaxResponseSize)
	if o.Transport == nil {
		o.Transport = newTransport(o.TLS)
	}
	return &Server{options: o, base: base, client: &http.Client{Transport: o.Transport, CheckRedirect: checkRedirect}}, nil
}

// newTransport returns Go's default transport, but with more idle connections per host.
func newTransport(config *tls.Config) http.RoundTripper {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.TLSClientConfig = config
	t.MaxIdleConnsPerHost = 32
	t.MaxResponseHeaderBytes = 64 << 10
	return t
}

// parseBase validates a FHIR base URL. Its errors don't contain the URL if it may contain a password.
func parseBase(base string, allowHTTP bool) (*url.URL, error) {
	u, err := url.Parse(base)
	switch {
	case err != nil:
		return nil, errors.New("the address of a terminology server is malformed")
	case u.User != nil:
		return nil, errors.New("the address of a terminology server must not contain credentials; set them as options")
	case u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "":
		return nil, fmt.Errorf("the address of a terminology server must be an https URL: %s", base)
	case u.RawQuery != "" || u.Fragment != "":
		return nil, fmt.Errorf("the address of a terminology server must not have a query or fragment: %s", base)
	case u.Scheme == "http" && !allowHTTP && !httporigin.IsLoopback(u.Hostname()):
		return nil, fmt.Errorf("the address of a terminology server must be https, except on this machine: %s", base)
	}
	return u, nil
}

// checkRedirect protects the credentials. It permits only redirects to the same origin with the same method.
func checkRedirect(next *http.Request, via []*http.Request) error {
	first := via[0]
	if len(via) > 3 || next.URL.Scheme != first.URL.Scheme || next.URL.Host != first.URL.Host || next.Method != first.Method {
		return http.ErrUseLastResponse
	}
	return nil
}

// Base returns the FHIR base URL. It must only be logged.
func (s *Server) Base() string { return s.options.Base }

// Do sends a request unless the server's Retry-After has not elapsed. Its errors are of type [*Error].
func (s *Server) Do(ctx context.Context, q Request) (*Response, error) {
	ctx, cancel := context.WithTimeout(ctx, s.options.Timeout)
	defer cancel()
	request, err := s.request(ctx, q)
	if err != nil {
		return nil, newError(serverName, err)
	}
	if err := s.backoff.Err(serverName); err != nil {
		return nil, err
	}
	response, err := s.client.Do(request)
	if err != nil {
		return nil, newError(serverName, networkError(errUnreachable, err))
	}
	defer func() { _ = response.Body.Close() }()
	wait := s.backoff.RecordRetryAfter(response.StatusCode, response.Header, true)
	result, err := s.read(q, response)
	if err != nil {
		e := newError(serverName, err)
		e.RetryAfter = wait
		return nil, e
	}
	if s.options.TTL > 0 {
		result.setLifetime(s.options.TTL)
	}
	return result, nil
}

// Metadata requests the server's CapabilityStatement. It returns an error if the status is not 200.
func (s *Server) Metadata(ctx context.Context) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.base.JoinPath("metadata").String(), nil)
	if err != nil {
		return err
	}
	r.Header.Set("Accept", "application/fhir+json")
	s.setCredentials(r)
	response, err := s.client.Do(r)
	if err != nil {
		return networkError(errUnreachable, err)
	}
	if err = response.Body.Close(); err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET metadata: status %d", response.StatusCode)
	}
	return err
}

// ParsedRequest is a request and its parameters. Create it with [ParseRequest].
type ParsedRequest struct {
	Request Request // request as passed to ParseRequest

	inputs  []parameters.Input // valid parameters
	page    expansion.Page
	err     error // error from parsing inputs
	hasPage bool  // whether page is valid
}

// pagingParameters are the parameters that select a part of an expansion.
var pagingParameters = []string{"filter", "offset", "count"}

// ParseRequest parses the parameters of a request.
func ParseRequest(request Request) ParsedRequest {
	q := ParsedRequest{Request: request, hasPage: true}
	if q.inputs, q.err = parameters.ParseQuery(request.Query); request.method() == http.MethodPost && len(request.Body) > 0 {
		var err error
		if q.inputs, err = parameters.AppendBody(q.inputs, request.ContentType, request.Body, "valueSet"); q.err == nil {
			q.err = err
		}
	}
	var query expansion.Query
	for i := range q.inputs {
		if in := &q.inputs[i]; slices.Contains(pagingParameters, in.Name) {
			_, err := query.Set(in)
			q.hasPage = q.hasPage && err == nil
		}
	}
	q.page = query.Page
	q.page.Filter = strings.TrimSpace(q.page.Filter)
	return q
}

// Request is a request for an operation or search.
type Request struct {
	// Method is GET or POST. HEAD is sent as GET, because a response without a body cannot be validated. Default: GET.
	Method string

	// Path is the path relative to the base URL, such as ValueSet/$expand.
	Path string

	// Query is the encoded query string. Default: none.
	Query string

	// Body is the body of a POST request.
	Body []byte

	// ContentType is the media type of Body. Default: application/fhir+json.
	ContentType string

	// Accept is the Accept header. Default, also for browsers' headers without a FHIR media type: application/fhir+json.
	Accept string

	// AcceptLanguage is the Accept-Language header. Default: none.
	AcceptLanguage string

	// IfNoneMatch is the entity tag of the response that the client has cached. Default: none.
	IfNoneMatch string
}

func (q *Request) method() string {
	if q.Method == http.MethodHead {
		return http.MethodGet
	}
	return cmp.Or(q.Method, http.MethodGet)
}

// acceptHeader returns the media type to request. It is never that of a browser, because some servers send HTML to browsers.
func (q *Request) acceptHeader() string {
	if fhir := strings.Contains(q.Accept, "json") || strings.Contains(q.Accept, "xml"); !fhir || strings.Contains(q.Accept, "html") {
		return "application/fhir+json"
	}
	return q.Accept
}

func setHeader(r *http.Request, q Request) {
	r.Header.Set("Accept", q.acceptHeader())
	if r.Method == http.MethodPost {
		r.Header.Set("Content-Type", cmp.Or(q.ContentType, "application/fhir+json"))
		r.Header["Idempotency-Key"] = []string{} // is not sent, but permits net/http to retry the request on a new connection
	}
	for name, value := range map[string]string{"Accept-Language": q.AcceptLanguage, "If-None-Match": q.IfNoneMatch} {
		if value != "" {
			r.Header.Set(name, value)
		}
	}
}

// checkPath returns an error if a path contains characters that do not occur in IDs and operation names.
func checkPath(path string) error {
	for part := range strings.SplitSeq(path, "/") {
		if part == "" || strings.Trim(part, ".") == "" || strings.ContainsFunc(part, isInvalidPathRune) {
			return fmt.Errorf("%w: path %q", errInvalidRequest, path)
		}
	}
	return nil
}

func isInvalidPathRune(r rune) bool {
	letter := 'a' <= r|0x20 && r|0x20 <= 'z'
	return !letter && (r < '0' || r > '9') && !strings.ContainsRune("$-._", r)
}

// request returns the HTTP request to send.
func (s *Server) request(ctx context.Context, q Request) (*http.Request, error) {
	if err := checkPath(q.Path); err != nil {
		return nil, err
	}
	u := *s.base
	u.Path = strings.TrimSuffix(u.Path, "/") + "/" + q.Path
	u.RawPath, u.RawQuery = "", q.Query
	var body io.Reader
	if q.method() == http.MethodPost {
		body = bytes.NewReader(q.Body)
	}
	r, err := http.NewRequestWithContext(ctx, q.method(), u.String(), body)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errInvalidRequest, err)
	}
	s.setCredentials(r)
	setHeader(r, q)
	return r, nil
}

func (s *Server) setCredentials(r *http.Request) {
	switch {
	case s.options.Bearer != "":
		r.Header.Set("Authorization", "Bearer "+s.options.Bearer)
	case s.options.Username != "":
		r.SetBasicAuth(s.options.Username, s.options.Password)
	}
}
