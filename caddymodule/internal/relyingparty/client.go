package relyingparty

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// DefaultTimeout is the default of [Config.Timeout].
const DefaultTimeout = 10 * time.Second

// maxBodySize is the maximum size of a response body in bytes.
const maxBodySize = 1 << 20

// endpoint is the purpose of a request, which determines the kind of errors.
type endpoint string

const (
	discoveryEndpoint endpoint = "discovery"
	keysEndpoint      endpoint = "jwks_uri"
	tokenEndpoint     endpoint = "token endpoint"
	userinfoEndpoint  endpoint = "userinfo endpoint"
	groupsEndpoint    endpoint = "Microsoft Graph"
	registeredURL     endpoint = "registered URL"
)

type client struct {
	transport http.RoundTripper
	timeout   time.Duration // timeout of each request
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

// defaultTransport returns a transport that closes idle connections early. Otherwise, a code, which must not be sent twice,
// might be sent on a connection that the provider is closing (Node closes idle connections after 5 s).
func defaultTransport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.IdleConnTimeout = 4 * time.Second
	t.MaxResponseHeaderBytes = 64 << 10
	return t
}

// Transport returns the default transport of [Config] with TLS settings. If config is nil, it returns nil, which means the
// default transport.
func Transport(config *tls.Config) http.RoundTripper {
	if config == nil {
		return nil
	}
	t := defaultTransport()
	t.TLSClientConfig = config
	return t
}

// get sends a GET request with the given headers.
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

// do sends a request and returns the body and headers of the response. Any status other than 200 is an error.
func (c client) do(e endpoint, r *http.Request) ([]byte, http.Header, error) {
	response, err := (&http.Client{Transport: bufferedTransport{c, e}}).Do(r)
	if err != nil {
		return nil, nil, err
	}
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %w: %d", e, ErrStatus, response.StatusCode)
	}
	return body, response.Header, err
}

// bufferedTransport is an [http.RoundTripper] that reads entire responses, so that the timeout covers the body too.
type bufferedTransport struct {
	client
	endpoint endpoint
}

// RoundTrip implements [http.RoundTripper].
func (x bufferedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(r.Context(), x.timeout)
	defer cancel()
	var hasStarted atomic.Bool // set in a goroutine of the transport
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotFirstResponseByte: func() { hasStarted.Store(true) }})
	response, err := x.transport.RoundTrip(r.WithContext(ctx))
	if err != nil {
		return nil, x.classifyError(err, hasStarted.Load())
	}
	defer response.Body.Close()
	if response.StatusCode >= 300 && response.StatusCode < 400 {
		return nil, fmt.Errorf("%s: %w: %d", x.endpoint, ErrRedirect, response.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxBodySize+1))
	if err != nil {
		return nil, x.classifyError(err, true)
	}
	if len(body) > maxBodySize {
		return nil, fmt.Errorf("%s: %w: more than %d bytes", x.endpoint, ErrTooLarge, maxBodySize)
	}
	response.Body = io.NopCloser(bytes.NewReader(body))
	return response, nil
}

// classifyError returns an [Error] if a connection error has a kind, and otherwise the error itself.
func (x bufferedTransport) classifyError(err error, hasStarted bool) error {
	err = fmt.Errorf("%s: %w", x.endpoint, err)
	switch timeout := isTimeout(err); {
	case !timeout && isReset(err):
		return &Error{Kind: ConnectionReset, Err: err}
	case !timeout:
		return err
	case x.endpoint == keysEndpoint:
		return &Error{Kind: KeysTimeout, Err: err}
	case x.endpoint == tokenEndpoint && !hasStarted:
		return &Error{Kind: TokenTimeout, Err: err}
	}
	return &Error{Kind: ReadTimeout, Err: err}
}

// isTimeout reports whether an error is a timeout of this client, the kernel or the resolver.
func isTimeout(err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout()
}

// isReset reports whether the peer closed the connection (or, with HTTP/2, reset the stream) before the response was complete.
func isReset(err error) bool {
	is := func(cause error) bool { return errors.Is(err, cause) }
	causes := []error{syscall.ECONNRESET, syscall.ECONNABORTED, syscall.EPIPE, io.EOF, io.ErrUnexpectedEOF}
	return slices.ContainsFunc(causes, is) || errors.As(err, new(streamError))
}

// streamError corresponds to the unexported type in net/http. That type's As method assigns to any struct with the same fields.
type streamError struct {
	StreamID uint32
	Code     uint32
	Cause    error
}

// Error implements error, which errors.As requires.
func (e streamError) Error() string { return fmt.Sprintf("HTTP/2 stream error %d", e.Code) }

var errNonPublicAddress = errors.New("address is not public")

// PublicTransport returns a transport for URLs chosen by clients (RFC 7591 §5). It connects only to public addresses, to
// prevent server-side request forgery (RFC 9700 §4.10). It checks each address after name resolution and does not use proxies,
// which would resolve names themselves.
func PublicTransport() http.RoundTripper {
	t := defaultTransport()
	t.Proxy = nil
	t.DialContext = (&net.Dialer{Timeout: DefaultTimeout, KeepAlive: 30 * time.Second, Control: rejectNonPublic}).DialContext
	return t
}

func rejectNonPublic(_, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%w: %s", errNonPublicAddress, address)
	}
	if !isPublic(to.Addr()) {
		return fmt.Errorf("%w: %s", errNonPublicAddress, to.Addr())
	}
	return nil
}

// globalIPv6 excludes loopback, link-local and unique local addresses, and most addresses that embed an
// IPv4 address.
var globalIPv6 = netip.MustParsePrefix("2000::/3")

// nonPublicPrefixes lists the non-public IPv4 addresses and the non-public addresses within globalIPv6 (RFC 6890).
var nonPublicPrefixes = mustParsePrefixes(
	"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
	"192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24",
	"224.0.0.0/4", "240.0.0.0/4",
	"2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20",
)

func isPublic(ip netip.Addr) bool {
	if ip = ip.Unmap(); ip.Is6() && !globalIPv6.Contains(ip.WithZone("")) {
		return false
	}
	return !slices.ContainsFunc(nonPublicPrefixes, func(p netip.Prefix) bool { return p.Contains(ip.WithZone("")) })
}

func mustParsePrefixes(texts ...string) []netip.Prefix {
	list := make([]netip.Prefix, len(texts))
	for i, text := range texts {
		list[i] = netip.MustParsePrefix(text)
	}
	return list
}

// fetchTimeout is the timeout of [Fetch]. It is short because a user waits for the response.
const fetchTimeout = 5 * time.Second

// Fetch returns the content at a URL that a client registered. It is limited to five seconds and to limit bytes. It does not
// follow redirects and sends nothing that identifies a person. The transport determines which hosts are reachable; see
// [PublicTransport].
func Fetch(ctx context.Context, transport http.RoundTripper, url string, limit int) ([]byte, error) {
	body, _, err := newClient(transport, fetchTimeout).get(ctx, registeredURL, url, nil)
	if err == nil && len(body) > limit {
		err = fmt.Errorf("%s: %w: more than %d bytes", registeredURL, ErrTooLarge, limit)
	}
	return body, err
}

// ErrorKind is the kind of an [Error].
type ErrorKind int

// The kinds of errors. Each one except [AuthorizationFailed] has a description for the client.
const (
	TokenTimeout        ErrorKind = iota + 1 // the token endpoint's response did not start before the timeout
	KeysTimeout                              // the key set was not received before the timeout
	TokenRejected                            // the token endpoint returned an error or an invalid token response (RFC 6749 §5)
	ConnectionReset                          // the provider closed a connection before it responded
	ReadTimeout                              // another response was not received before the timeout
	AuthorizationFailed                      // the authorization response contains an error (RFC 6749 §4.1.2.1)
)

// String returns the name of the kind, for logs.
func (k ErrorKind) String() string {
	names := [...]string{
		TokenTimeout: "token time-out", KeysTimeout: "keys time-out", TokenRejected: "refused",
		ConnectionReset: "connection reset", ReadTimeout: "read time-out", AuthorizationFailed: "declined",
	}
	if k < TokenTimeout || int(k) >= len(names) {
		return fmt.Sprintf("kind %d", int(k))
	}
	return names[k]
}

// Error is a failure of the provider that is reported to the client. Error.Error returns the text for the log;
// [Error.Description] returns a text that may be shown to the client.
type Error struct {
	Kind   ErrorKind // kind of failure
	Status int       // status of the token endpoint's response; only for [TokenRejected]

	// Code is the provider's error code (RFC 6749 §4.1.2.1, §5.2, or of a Google API), or "" unless it consists of at most 100
	// characters that the RFC allows. It is set only for [TokenRejected] and [AuthorizationFailed].
	Code string

	Err error // cause of the failure
}

// Error returns the kind and the cause.
func (e *Error) Error() string {
	if e.Err == nil {
		return e.Kind.String()
	}
	return e.Kind.String() + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Description returns the error_description for an invalid_request error, which the client receives, or false if the client
// receives server_error. The texts are fixed except for the provider's name, the status and, for Google, its error code.
func (e *Error) Description(name string, google bool) (string, bool) {
	switch e.Kind {
	case TokenTimeout:
		return "Timeout occurred in calling IdP token endpoint", true
	case KeysTimeout:
		return "Timeout in calling jwks uri", true
	case ConnectionReset:
		return "Connection reset", true
	case ReadTimeout:
		return "Read timed out", true
	case TokenRejected:
		detail := "error getting token"
		if google && e.Code != "" {
			detail = e.Code
		}
		return fmt.Sprintf("%s Error - %d %s", descriptionText(name), e.Status, detail), true
	}
	return "", false
}

// descriptionText replaces characters that are not allowed in an error_description (RFC 6749 §4.1.2.1).
func descriptionText(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= ' ' && r <= '~' && r != '"' && r != '\\' {
			return r
		}
		return '?'
	}, s)
}

// errorCode returns a provider's error code, or "" if it is not suitable for a redirect and the log (RFC 6749 §5.2).
func errorCode(code string) string {
	if len(code) > 100 || descriptionText(code) != code {
		return ""
	}
	return code
}

// Causes of failures that have no kind, for logs and tests.
var (
	ErrRedirect    = errors.New("unexpected redirect")            // rejected, because the response would choose the next request
	ErrTooLarge    = errors.New("response too large")             // larger than 1 MiB
	ErrStatus      = errors.New("unexpected HTTP status")         // from an endpoint other than the token endpoint
	ErrMetadata    = errors.New("invalid provider metadata")      // e.g. of another issuer
	ErrKeys        = errors.New("invalid key set")                // the response is not a JWK Set
	ErrUnknownKey  = errors.New("unknown signing key")            // no key has the token's kid
	ErrSignature   = errors.New("invalid signature")              // or unsupported algorithm, or not a JWS
	ErrCallback    = errors.New("invalid authorization response") // e.g. of another issuer (RFC 9207 §2.4)
	ErrIDToken     = errors.New("invalid ID token")               // missing or invalid (OpenID Connect Core §3.1.3.7)
	ErrLogoutToken = errors.New("invalid logout token")           // invalid according to OpenID Connect Back-Channel Logout 1.0 §2.6
	ErrUserInfo    = errors.New("invalid userinfo")               // e.g. of another person (OpenID Connect Core §5.3.2)
	ErrGroups      = errors.New("invalid groups")                 // e.g. Microsoft Graph returned too many
)
