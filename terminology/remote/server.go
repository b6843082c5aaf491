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
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/httporigin"
)

// Options says how a [Server] is reached.
type Options struct {
	// Name is what the server is called in texts for clients, as "the terminology server". It should not
	// be its address. Default: the terminology server.
	Name string

	// Base is the server's FHIR base URL, as https://tx.example/r4. Required. http is accepted on loopback.
	Base string

	// AllowHTTP accepts http everywhere: questions, answers and credentials can then be read and changed
	// on the way. Default: false.
	AllowHTTP bool

	// Timeout is how long a question may take, from connecting to the end of the answer. Default: 10 s.
	Timeout time.Duration

	// MaxAnswer is how large an answer may be, in bytes, decompressed. Default: 16 MiB.
	MaxAnswer int64

	// Bearer is the token that is sent as credentials (RFC 6750). Default: none.
	Bearer string

	// Username and Password are sent as credentials (RFC 7617), unless Username is empty.
	Username, Password string

	// TLS is the TLS configuration, for own certificate authorities or a client certificate. Default: Go's.
	TLS *tls.Config

	// Transport sends the requests, in place of one of this package. Not together with TLS. Default: none.
	Transport http.RoundTripper
}

// Defaults of [Options].
const (
	DefaultName      = "the terminology server"
	DefaultTimeout   = 10 * time.Second
	DefaultMaxAnswer = 16 << 20
)

// Server is a FHIR server that can be asked. Make one with [NewServer]. It may be used by any number of
// goroutines.
type Server struct {
	options Options
	base    *url.URL
	client  *http.Client
	backoff Backoff
}

// NewServer returns a server. Nothing is sent to it yet. It fails on options that are wrong.
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
	case o.Timeout < 0 || o.MaxAnswer < 0:
		return nil, errors.New("timeout and size of an answer must not be negative")
	}
	if o.Name == "" {
		o.Name = DefaultName
	}
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	if o.MaxAnswer == 0 {
		o.MaxAnswer = DefaultMaxAnswer
	}
	if o.Transport == nil {
		o.Transport = newTransport(o.TLS)
	}
	return &Server{options: o, base: base, client: &http.Client{Transport: o.Transport, CheckRedirect: stay}}, nil
}

// newTransport returns a transport like Go's own one, but with more connections kept to the one server.
func newTransport(config *tls.Config) http.RoundTripper {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.TLSClientConfig = config
	t.MaxIdleConnsPerHost = 32
	t.MaxResponseHeaderBytes = 64 << 10
	return t
}

// parseBase checks a FHIR base URL. Its text stays out of the errors where it may hold a password.
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

// stay lets the client follow redirects only to where it is already, and only where the question stays the
// same: the credentials are for nobody else.
func stay(next *http.Request, via []*http.Request) error {
	first := via[0]
	if len(via) > 3 || next.URL.Scheme != first.URL.Scheme || next.URL.Host != first.URL.Host || next.Method != first.Method {
		return http.ErrUseLastResponse
	}
	return nil
}

// Base returns its FHIR base URL, for logs.
func (s *Server) Base() string { return s.options.Base }

// Question is an operation, or a search, on a FHIR server.
type Question struct {
	// Method is GET or POST. HEAD is asked as GET, since an answer without a body cannot be checked.
	// Default: GET.
	Method string

	// Path is the path below the base URL, as ValueSet/$expand.
	Path string

	// Query is the query string, encoded. Default: none.
	Query string

	// Body is the body of a POST.
	Body []byte

	// ContentType is the media type of Body. Default: application/fhir+json.
	ContentType string

	// Accept is the header of that name; one that is not for FHIR, as a browser's, counts as the default.
	// Default: application/fhir+json.
	Accept string

	// AcceptLanguage is the header of that name. Default: none.
	AcceptLanguage string

	// IfNoneMatch is the ETag of the answer that the asker has. Default: none.
	IfNoneMatch string
}

// Ask asks the server, unless it said to be left alone and the time for that is not over. What it returns beside an
// answer is an [*Error].
func (s *Server) Ask(ctx context.Context, q Question) (*Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, s.options.Timeout)
	defer cancel()
	request, err := s.request(ctx, q)
	if err != nil {
		return nil, fail(s.options.Name, err)
	}
	if err := s.backoff.Err(s.options.Name); err != nil {
		return nil, err
	}
	response, err := s.client.Do(request)
	if err != nil {
		return nil, fail(s.options.Name, broken(ErrUnreachable, err))
	}
	defer func() { _ = response.Body.Close() }() // there is nothing more to be learnt from it
	wait := s.backoff.Note(response.StatusCode, response.Header, true)
	answer, err := s.read(q, response)
	if err != nil {
		e := fail(s.options.Name, err)
		e.RetryAfter = wait
		return nil, e
	}
	return answer, nil
}

// request makes the request for a question.
func (s *Server) request(ctx context.Context, q Question) (*http.Request, error) {
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
		return nil, fmt.Errorf("%w: %w", ErrQuestion, err)
	}
	s.setHeader(r, q)
	return r, nil
}

// method returns the method that is asked with.
func (q *Question) method() string {
	if q.Method == http.MethodHead {
		return http.MethodGet
	}
	return cmp.Or(q.Method, http.MethodGet)
}

// accept returns what is asked for. Some servers have pages for browsers, which are no answer.
func (q *Question) accept() string {
	if fhir := strings.Contains(q.Accept, "json") || strings.Contains(q.Accept, "xml"); !fhir || strings.Contains(q.Accept, "html") {
		return "application/fhir+json"
	}
	return q.Accept
}

// setHeader sets the headers of a request.
func (s *Server) setHeader(r *http.Request, q Question) {
	setQuestion(r, q)
	switch {
	case s.options.Bearer != "":
		r.Header.Set("Authorization", "Bearer "+s.options.Bearer)
	case s.options.Username != "":
		r.SetBasicAuth(s.options.Username, s.options.Password)
	}
}

// setQuestion sets those headers of a request that belong to the question.
func setQuestion(r *http.Request, q Question) {
	r.Header.Set("Accept", q.accept())
	if r.Method == http.MethodPost {
		r.Header.Set("Content-Type", cmp.Or(q.ContentType, "application/fhir+json"))
		r.Header["Idempotency-Key"] = []string{} // not sent; tells Go that an operation may be sent again when a connection is lost
	}
	for name, value := range map[string]string{"Accept-Language": q.AcceptLanguage, "If-None-Match": q.IfNoneMatch} {
		if value != "" {
			r.Header.Set(name, value)
		}
	}
}

// checkPath makes sure that a path stays below the base URL: it has only letters, digits, and what ids and
// the names of operations have.
func checkPath(path string) error {
	for part := range strings.SplitSeq(path, "/") {
		if part == "" || strings.Trim(part, ".") == "" || strings.ContainsFunc(part, isNoPath) {
			return fmt.Errorf("%w: path %q", ErrQuestion, path)
		}
	}
	return nil
}

// isNoPath reports whether a character is none of a path of FHIR.
func isNoPath(r rune) bool {
	letter := 'a' <= r|0x20 && r|0x20 <= 'z'
	return !letter && (r < '0' || r > '9') && !strings.ContainsRune("$-._", r)
}

// read reads the answer to a question.
func (s *Server) read(q Question, response *http.Response) (*Answer, error) {
	response.Header.Del("Content-Location") // is an address of the server's own
	if response.StatusCode == http.StatusNotModified && q.IfNoneMatch != "" {
		return &Answer{Status: http.StatusNotModified, Header: keep(response.Header), NotModified: true}, nil
	}
	if err := checkStatus(&Answer{Status: response.StatusCode}); err != nil {
		return nil, err // whatever the body says
	}
	if response.ContentLength > s.options.MaxAnswer {
		return nil, fmt.Errorf("%w: %d bytes", ErrTooLarge, response.ContentLength)
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, s.options.MaxAnswer+1))
	switch {
	case err != nil:
		return nil, broken(ErrCutShort, err)
	case int64(len(body)) > s.options.MaxAnswer:
		return nil, fmt.Errorf("%w: more than %d bytes", ErrTooLarge, s.options.MaxAnswer)
	}
	return check(q.Path, response.StatusCode, response.Header, body)
}
