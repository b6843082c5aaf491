package remote

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/httporigin"
)

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
