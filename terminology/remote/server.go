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

// Options are those of a [Server].
type Options struct {
	// Base is the server's FHIR base URL, as https://tx.example/r4. Required. http is accepted on loopback.
	Base string

	// AllowHTTP accepts http everywhere: requests, answers and credentials can then be read and changed on the way.
	// Default: false.
	AllowHTTP bool

	// Timeout bounds a request, from connecting to the end of the answer. Default: 10 s.
	Timeout time.Duration

	// MaxAnswer bounds an answer, in bytes, decompressed. Default: 16 MiB.
	MaxAnswer int64

	// TTL is how long its answers are fresh, and shared by all, whatever their headers say but no-store. Default: 0, their
	// headers count.
	TTL time.Duration

	// Bearer is the token to authenticate with (RFC 6750). Default: none.
	Bearer string

	// Username and Password are credentials (RFC 7617), unless Username is empty.
	Username, Password string

	// TLS is for own certificate authorities or a client certificate. Default: Go's configuration.
	TLS *tls.Config

	// Transport sends the requests. Not together with TLS. Default: one of this package.
	Transport http.RoundTripper
}

// Server is a FHIR server. Make one with [NewServer]. It is safe for concurrent use.
type Server struct {
	options Options
	base    *url.URL
	client  *http.Client
	backoff Backoff
}

// Defaults of [Options].
const (
	DefaultTimeout   = 10 * time.Second
	DefaultMaxAnswer = 16 << 20
)

// serverName stands for any server in texts for clients, which hold no addresses.
const serverName = "the terminology server"

// NewServer returns a server, without connecting to it. It fails on wrong options.
func NewServer(o Options) (*Server, error) {
	base, err := parseBase(o.Base, o.AllowHTTP)
	if err != nil {
		return nil, err
	}
	switch {
	case o.Transport != nil && o.TLS != nil:
		return nil, errors.New("both a transport and a TLS configuration: one of them")
	case o.Bearer != "" && o.Username != "":
		return nil, errors.New("both bearer and basic credentials: one of them")
	case o.Timeout < 0 || o.MaxAnswer < 0 || o.TTL < 0:
		return nil, errors.New("timeout, lifetime and size of an answer must not be negative")
	}
	o.Timeout, o.MaxAnswer = cmp.Or(o.Timeout, DefaultTimeout), cmp.Or(o.MaxAnswer, DefaultMaxAnswer)
	if o.Transport == nil {
		o.Transport = newTransport(o.TLS)
	}
	return &Server{options: o, base: base, client: &http.Client{Transport: o.Transport, CheckRedirect: sameServer}}, nil
}

// newTransport returns Go's transport, keeping more connections to one host.
func newTransport(config *tls.Config) http.RoundTripper {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.TLSClientConfig = config
	t.MaxIdleConnsPerHost = 32
	t.MaxResponseHeaderBytes = 64 << 10
	return t
}

// parseBase checks a FHIR base URL. Errors do not repeat one that may hold a password.
func parseBase(base string, allowHTTP bool) (*url.URL, error) {
	u, err := url.Parse(base)
	switch {
	case err != nil:
		return nil, errors.New("the address of a terminology server is malformed")
	case u.User != nil:
		return nil, errors.New("the address of a terminology server must not hold credentials; there are options for them")
	case u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "":
		return nil, fmt.Errorf("the address of a terminology server must be an https URL: %s", base)
	case u.RawQuery != "" || u.Fragment != "":
		return nil, fmt.Errorf("the address of a terminology server must have no query and no fragment: %s", base)
	case u.Scheme == "http" && !allowHTTP && !httporigin.IsLoopback(u.Hostname()):
		return nil, fmt.Errorf("the address of a terminology server must be https, save on this machine: %s", base)
	}
	return u, nil
}

// sameServer follows redirects only to the same origin with the same method: the credentials are for nobody else.
func sameServer(next *http.Request, via []*http.Request) error {
	first := via[0]
	if len(via) > 3 || next.URL.Scheme != first.URL.Scheme || next.URL.Host != first.URL.Host || next.Method != first.Method {
		return http.ErrUseLastResponse
	}
	return nil
}

// Base returns its FHIR base URL, for logs.
func (s *Server) Base() string { return s.options.Base }

// Ask sends a request, unless the server asked for a pause that is not over. Its error is an [*Error].
func (s *Server) Ask(ctx context.Context, q Request) (*Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, s.options.Timeout)
	defer cancel()
	request, err := s.request(ctx, q)
	if err != nil {
		return nil, fail(serverName, err)
	}
	if err := s.backoff.Err(serverName); err != nil {
		return nil, err
	}
	response, err := s.client.Do(request)
	if err != nil {
		return nil, fail(serverName, networkError(errUnreachable, err))
	}
	defer func() { _ = response.Body.Close() }()
	wait := s.backoff.Note(response.StatusCode, response.Header, true)
	answer, err := s.read(q, response)
	if err != nil {
		e := fail(serverName, err)
		e.RetryAfter = wait
		return nil, e
	}
	if s.options.TTL > 0 {
		answer.setLifetime(s.options.TTL)
	}
	return answer, nil
}

// Metadata says why the server cannot be had: it does not answer a request for its CapabilityStatement by 200.
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

// Question is a request with its parameters. Make one with [Read].
type Question struct {
	Request Request // as it was

	inputs []parameters.Input // as far as they can be understood
	page   expansion.Page
	err    error // of reading inputs
	paged  bool  // page could be read
}

// paging are the parameters that say which part of an expansion is wanted.
var paging = []string{"filter", "offset", "count"}

// Read reads the parameters of a request.
func Read(request Request) Question {
	q := Question{Request: request, paged: true}
	if q.inputs, q.err = parameters.QueryInputs(request.Query); request.method() == http.MethodPost && len(request.Body) > 0 {
		var err error
		if q.inputs, err = parameters.AddBody(q.inputs, request.ContentType, request.Body, "valueSet"); q.err == nil {
			q.err = err
		}
	}
	var query expansion.Query
	for i := range q.inputs {
		if in := &q.inputs[i]; slices.Contains(paging, in.Name) {
			_, err := query.Set(in)
			q.paged = q.paged && err == nil
		}
	}
	q.page = query.Page
	q.page.Filter = strings.TrimSpace(q.page.Filter)
	return q
}

// Request is an operation, or a search, on a FHIR server.
type Request struct {
	// Method is GET or POST. HEAD is sent as GET, since an answer without a body cannot be checked. Default: GET.
	Method string

	// Path is the path below the base URL, as ValueSet/$expand.
	Path string

	// Query is the query string, encoded. Default: none.
	Query string

	// Body is the body of a POST.
	Body []byte

	// ContentType is the media type of Body. Default: application/fhir+json.
	ContentType string

	// Accept is the header of that name. Default, also for one that is not for FHIR, such as a browser's:
	// application/fhir+json.
	Accept string

	// AcceptLanguage is the header of that name. Default: none.
	AcceptLanguage string

	// IfNoneMatch is the ETag of the client's answer. Default: none.
	IfNoneMatch string
}

func (q *Request) method() string {
	if q.Method == http.MethodHead {
		return http.MethodGet
	}
	return cmp.Or(q.Method, http.MethodGet)
}

// accept returns the media type to ask for. Some servers answer browsers with pages.
func (q *Request) accept() string {
	if fhir := strings.Contains(q.Accept, "json") || strings.Contains(q.Accept, "xml"); !fhir || strings.Contains(q.Accept, "html") {
		return "application/fhir+json"
	}
	return q.Accept
}

func setHeader(r *http.Request, q Request) {
	r.Header.Set("Accept", q.accept())
	if r.Method == http.MethodPost {
		r.Header.Set("Content-Type", cmp.Or(q.ContentType, "application/fhir+json"))
		r.Header["Idempotency-Key"] = []string{} // not sent, but lets Go repeat the request when a connection is lost
	}
	for name, value := range map[string]string{"Accept-Language": q.AcceptLanguage, "If-None-Match": q.IfNoneMatch} {
		if value != "" {
			r.Header.Set(name, value)
		}
	}
}

// checkPath refuses a path that could leave the base URL: it allows the characters of ids and operation names.
func checkPath(path string) error {
	for part := range strings.SplitSeq(path, "/") {
		if part == "" || strings.Trim(part, ".") == "" || strings.ContainsFunc(part, isNoPath) {
			return fmt.Errorf("%w: path %q", errRequest, path)
		}
	}
	return nil
}

func isNoPath(r rune) bool {
	letter := 'a' <= r|0x20 && r|0x20 <= 'z'
	return !letter && (r < '0' || r > '9') && !strings.ContainsRune("$-._", r)
}

// request returns the HTTP request for a request.
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
		return nil, fmt.Errorf("%w: %w", errRequest, err)
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
