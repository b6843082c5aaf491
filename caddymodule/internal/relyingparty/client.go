package relyingparty

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"os"
	"slices"
	"sync/atomic"
	"syscall"
	"time"
)

// DefaultTimeout is the default of [Config.Timeout].
const DefaultTimeout = 10 * time.Second

// maxBody is how much of a response is read, in bytes.
const maxBody = 1 << 20

// endpoint is what a request is for, which decides the kind of its errors.
type endpoint string

const (
	discoveryEndpoint endpoint = "discovery"
	keysEndpoint      endpoint = "jwks_uri"
	tokenEndpoint     endpoint = "token endpoint"
	userinfoEndpoint  endpoint = "userinfo endpoint"
	registeredAddress endpoint = "registered address"
)

type client struct {
	transport http.RoundTripper
	timeout   time.Duration // of each request
}

func newClient(transport http.RoundTripper, timeout time.Duration) client {
	if transport == nil {
		transport = defaultTransport()
	}
	if timeout <= 0 {
		timeout = DefaultTimeout
	}
	return client{transport, timeout}
}

// defaultTransport drops idle connections early: a provider might be closing one (Node
// does after 5 s) while we send a code, which must not be sent twice.
func defaultTransport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.IdleConnTimeout = 4 * time.Second
	t.MaxResponseHeaderBytes = 64 << 10
	return t
}

// Transport returns the default transport of [Config] with settings for TLS. For nil settings it returns nil:
// the default transport.
func Transport(config *tls.Config) http.RoundTripper {
	if config == nil {
		return nil
	}
	t := defaultTransport()
	t.TLSClientConfig = config
	return t
}

// get makes a request with some headers.
func (c client) get(ctx context.Context, e endpoint, url string, header http.Header) ([]byte, http.Header, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", e, err)
	}
	if header != nil {
		r.Header = header
	}
	return c.do(e, r)
}

// do treats any status but 200 as an error.
func (c client) do(e endpoint, r *http.Request) ([]byte, http.Header, error) {
	response, err := (&http.Client{Transport: exchange{c, e}}).Do(r)
	if err != nil {
		return nil, nil, err
	}
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %w: %d", e, ErrStatus, response.StatusCode)
	}
	return body, response.Header, err
}

// exchange is an http.RoundTripper that reads whole responses, so that the timeout covers
// the body too.
type exchange struct {
	client
	endpoint endpoint
}

// RoundTrip implements http.RoundTripper.
func (x exchange) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(r.Context(), x.timeout)
	defer cancel()
	var began atomic.Bool // set by a goroutine of the transport
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotFirstResponseByte: func() { began.Store(true) }})
	response, err := x.transport.RoundTrip(r.WithContext(ctx))
	if err != nil {
		return nil, x.failure(err, began.Load())
	}
	defer response.Body.Close()
	if response.StatusCode >= 300 && response.StatusCode < 400 {
		return nil, fmt.Errorf("%s: %w: %d", x.endpoint, ErrRedirect, response.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxBody+1))
	if err != nil {
		return nil, x.failure(err, true)
	}
	if len(body) > maxBody {
		return nil, fmt.Errorf("%s: %w: more than %d bytes", x.endpoint, ErrTooLarge, maxBody)
	}
	response.Body = io.NopCloser(bytes.NewReader(body))
	return response, nil
}

// failure returns the [Error] for a connection error, if there is a kind for it.
func (x exchange) failure(err error, began bool) error {
	err = fmt.Errorf("%s: %w", x.endpoint, err)
	switch timeout := isTimeout(err); {
	case !timeout && isReset(err):
		return &Error{Kind: Reset, Err: err}
	case !timeout:
		return err
	case x.endpoint == keysEndpoint:
		return &Error{Kind: KeysTimeout, Err: err}
	case x.endpoint == tokenEndpoint && !began:
		return &Error{Kind: TokenTimeout, Err: err}
	}
	return &Error{Kind: ReadTimeout, Err: err}
}

// isTimeout covers our timeout, the kernel's and the resolver's.
func isTimeout(err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout()
}

// isReset reports whether the other side ended the connection (or, over HTTP/2, this
// exchange) before the response was complete.
func isReset(err error) bool {
	is := func(cause error) bool { return errors.Is(err, cause) }
	causes := []error{syscall.ECONNRESET, syscall.ECONNABORTED, syscall.EPIPE, io.EOF, io.ErrUnexpectedEOF}
	return slices.ContainsFunc(causes, is) || errors.As(err, new(streamError))
}

// streamError stands for net/http's unexported type, whose As method fills any struct with
// the same fields.
type streamError struct {
	StreamID uint32
	Code     uint32
	Cause    error
}

// Error implements error, which errors.As requires.
func (e streamError) Error() string { return fmt.Sprintf("HTTP/2 stream error %d", e.Code) }
