package relyingparty_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/relyingparty"
)

// newTCPServer accepts connections and calls do for each one.
func newTCPServer(t *testing.T, do func(*net.TCPConn)) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				do(conn.(*net.TCPConn))
			}()
		}
	}()
	return listener.Addr().String()
}

// Failures before the request was sent, and responses that are not HTTP, are classified as the right kind.
func TestConnectionFaults(t *testing.T) {
	t.Parallel()
	hello := func(c *net.TCPConn) { _, _ = c.Read(make([]byte, 1)) } // reads the first byte of a TLS ClientHello or of the request
	silent := func(c *net.TCPConn) { _, _ = io.Copy(io.Discard, c) }
	sendRST := func(c *net.TCPConn) { hello(c); _ = c.SetLinger(0) }
	say := func(text string) func(*net.TCPConn) {
		return func(c *net.TCPConn) { hello(c); _, _ = io.WriteString(c, text); silent(c) }
	}
	tests := []struct {
		name, scheme string
		endpoint     providertest.Endpoint
		do           func(*net.TCPConn)
		description  string
		cause        error
	}{
		{"token: no TLS handshake", "https://", providertest.Token, silent, tokenTimeout, context.DeadlineExceeded},
		{"token: RST at connect", "http://", providertest.Token, func(c *net.TCPConn) { _ = c.SetLinger(0) }, reset, nil},
		{"token: RST within the TLS handshake", "https://", providertest.Token, sendRST, reset, nil},
		{"token: FIN within the TLS handshake", "https://", providertest.Token, hello, reset, nil},
		{"token: TLS alert", "https://", providertest.Token, say("\x15\x03\x03\x00\x02\x02\x28"), "", nil},
		{"token: no TLS", "https://", providertest.Token, say("HTTP/1.1 400 Bad Request\r\n\r\n"), "", nil},
		{"token: no HTTP", "http://", providertest.Token, say("SSH-2.0-x\r\n\r\n"), "", nil},
		{"token: half a status line", "http://", providertest.Token, say("HTTP/1.1 2"), readTimeout, context.DeadlineExceeded},
		{"token: header without end", "http://", providertest.Token, func(c *net.TCPConn) {
			hello(c)
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n")
			for {
				if _, err := io.WriteString(c, "X: 0123456789012345678901234567890123456789012345678901234567890123456789\r\n"); err != nil {
					return
				}
			}
		}, "", nil},
		{"token: invalid gzip", "http://", providertest.Token, say("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 20\r\n\r\n01234567890123456789"), "", nil},
		{"token: invalid chunks", "http://", providertest.Token, say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n"), "", nil},
		{"token: no content", "http://", providertest.Token, say("HTTP/1.1 204 No Content\r\n\r\n"), "General Hospital Error - 204 error getting token", nil},
		{"token: endless 100 responses", "http://", providertest.Token, say("HTTP/1.1 100 Continue\r\n\r\n"), readTimeout, context.DeadlineExceeded},
		{"keys: no TLS handshake", "https://", providertest.Keys, silent, keysTimeout, context.DeadlineExceeded},
		{"keys: RST within the TLS handshake", "https://", providertest.Keys, sendRST, reset, nil},
		{"userinfo: no TLS handshake", "https://", providertest.UserInfo, silent, readTimeout, context.DeadlineExceeded},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			idp := providertest.Start(t)
			member := map[providertest.Endpoint]string{
				providertest.Token: "token_endpoint", providertest.Keys: "jwks_uri", providertest.UserInfo: "userinfo_endpoint",
			}[tt.endpoint]
			address := tt.scheme + newTCPServer(t, tt.do) + "/x"
			idp.Change(func(s *providertest.Settings) { s.Metadata[member] = address })
			timeout := 5 * time.Second
			if tt.cause != nil {
				timeout = 300 * time.Millisecond
			}
			checkFault(t, failedSignIn(t, idp, timeout), tt.description, tt.cause)
		})
	}
}

const (
	tokenTimeout = "Timeout occurred in calling IdP token endpoint"
	keysTimeout  = "Timeout in calling jwks uri"
	reset        = "Connection reset"
	readTimeout  = "Read timed out"
)

// fault is a fault of an endpoint and the description that the client receives, or "" if the client receives only server_error.
type fault struct {
	name        string
	endpoint    providertest.Endpoint
	fault       providertest.Fault
	description string
	cause       error
}

var faults = []fault{
	{"token: silent", providertest.Token, providertest.NeverRespond, tokenTimeout, context.DeadlineExceeded},
	{"token: header stalls", providertest.Token, providertest.StallHeader, readTimeout, context.DeadlineExceeded},
	{"token: body stalls", providertest.Token, providertest.StallBody, readTimeout, context.DeadlineExceeded},
	{"token: body drips", providertest.Token, providertest.DripBytes, readTimeout, context.DeadlineExceeded},
	{"token: RST within the body", providertest.Token, providertest.ResetMidResponse, reset, nil},
	{"token: RST before the answer", providertest.Token, providertest.ResetConnection, reset, nil},
	{"token: FIN before the answer", providertest.Token, providertest.CloseConnection, reset, nil},
	{"token: FIN within the body", providertest.Token, providertest.TruncateBody, reset, nil},
	{"token: 500", providertest.Token, providertest.Status(500), "General Hospital Error - 500 error getting token", nil},
	{"token: 503", providertest.Token, providertest.Status(503), "General Hospital Error - 503 error getting token", nil},
	{"token: 400", providertest.Token, providertest.ErrorResponse(400, "invalid_grant"), "General Hospital Error - 400 error getting token", nil},
	{"token: 401", providertest.Token, providertest.ErrorResponse(401, "invalid_client"), "General Hospital Error - 401 error getting token", nil},
	{"token: HTML", providertest.Token, providertest.SendHTML, "General Hospital Error - 200 error getting token", nil},
	{"token: another JSON", providertest.Token, providertest.JSON(200, []string{"x"}), "General Hospital Error - 200 error getting token", nil},
	{"token: error with 200", providertest.Token, providertest.ErrorResponse(200, "invalid_grant"), "General Hospital Error - 200 error getting token", nil},
	{"token: no access token", providertest.Token, providertest.JSON(200, map[string]string{"id_token": "x"}), "General Hospital Error - 200 error getting token", nil},
	{"token: no ID token", providertest.Token, providertest.JSON(200, map[string]string{"access_token": "x", "token_type": "Bearer"}), "", relyingparty.ErrIDToken},
	{"token: 10 MB", providertest.Token, providertest.SendHugeJSON, "", relyingparty.ErrTooLarge},
	{"token: redirect", providertest.Token, providertest.Redirect("https://attacker.example/"), "", relyingparty.ErrRedirect},

	{"keys: silent", providertest.Keys, providertest.NeverRespond, keysTimeout, context.DeadlineExceeded},
	{"keys: body stalls", providertest.Keys, providertest.StallBody, keysTimeout, context.DeadlineExceeded},
	{"keys: RST", providertest.Keys, providertest.ResetMidResponse, reset, nil},
	{"keys: 500", providertest.Keys, providertest.Status(500), "", relyingparty.ErrStatus},
	{"keys: HTML", providertest.Keys, providertest.SendHTML, "", relyingparty.ErrKeys},
	{"keys: 10 MB", providertest.Keys, providertest.SendHugeJSON, "", relyingparty.ErrTooLarge},
	{"keys: redirect", providertest.Keys, providertest.Redirect("https://attacker.example/"), "", relyingparty.ErrRedirect},
	{"keys: none", providertest.Keys, providertest.JSON(200, []byte(`{"keys":[]}`)), "", relyingparty.ErrUnknownKey},

	{"userinfo: silent", providertest.UserInfo, providertest.NeverRespond, readTimeout, context.DeadlineExceeded},
	{"userinfo: RST", providertest.UserInfo, providertest.ResetMidResponse, reset, nil},
	{"userinfo: 500", providertest.UserInfo, providertest.Status(500), "", relyingparty.ErrStatus},
	{"userinfo: HTML", providertest.UserInfo, providertest.SendHTML, "", relyingparty.ErrUserInfo},
	{"userinfo: 10 MB", providertest.UserInfo, providertest.SendHugeJSON, "", relyingparty.ErrTooLarge},
	{"userinfo: redirect", providertest.UserInfo, providertest.Redirect("https://attacker.example/"), "", relyingparty.ErrRedirect},

	{"discovery: silent", providertest.Discovery, providertest.NeverRespond, readTimeout, context.DeadlineExceeded},
	{"discovery: body stalls", providertest.Discovery, providertest.StallBody, readTimeout, context.DeadlineExceeded},
	{"discovery: RST", providertest.Discovery, providertest.ResetMidResponse, reset, nil},
	{"discovery: FIN", providertest.Discovery, providertest.CloseConnection, reset, nil},
	{"discovery: 500", providertest.Discovery, providertest.Status(500), "", relyingparty.ErrStatus},
	{"discovery: HTML", providertest.Discovery, providertest.SendHTML, "", relyingparty.ErrMetadata},
	{"discovery: 10 MB", providertest.Discovery, providertest.SendHugeJSON, "", relyingparty.ErrTooLarge},
	{"discovery: redirect", providertest.Discovery, providertest.Redirect("https://attacker.example/"), "", relyingparty.ErrRedirect},
}

func TestFaults(t *testing.T) {
	t.Parallel()
	for _, tt := range faults {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			idp := providertest.Start(t)
			idp.SetFault(tt.endpoint, tt.fault)
			err := failedSignIn(t, idp, shortTimeout(tt))
			checkFault(t, err, tt.description, tt.cause)
			if got := count(idp, tt.endpoint); got != 1 {
				t.Errorf("%d requests", got)
			}
		})
	}
}

// shortTimeout returns a short timeout if the fault is a timeout.
func shortTimeout(tt fault) time.Duration {
	if errors.Is(tt.cause, context.DeadlineExceeded) {
		return 300 * time.Millisecond
	}
	return 0
}

// failedSignIn returns the error of a sign-in, regardless of the step in which it occurs.
func failedSignIn(t *testing.T, idp *providertest.Provider, timeout time.Duration) error {
	t.Helper()
	p := newProvider(t, idp, func(c *relyingparty.Config) { c.Timeout = timeout })
	r := newRequest()
	address, err := p.AuthenticationURL(t.Context(), r)
	if err != nil {
		return err
	}
	_, err = p.Exchange(t.Context(), callback(idp.Authorize(t, address)), r)
	return err
}

// checkSignInFails checks that sign-in at a provider with changed settings fails with the given error.
func checkSignInFails(t *testing.T, name string, cause error, change func(*providertest.Settings)) {
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		checkFault(t, failedSignIn(t, providertest.Start(t, change), 0), "", cause)
	})
}

func checkFault(t *testing.T, err error, description string, cause error) {
	t.Helper()
	if err == nil {
		t.Fatal("signed in")
	}
	if cause != nil && !errors.Is(err, cause) {
		t.Errorf("%v is not %v", err, cause)
	}
	if got := describe(err, "General Hospital", false); got != description {
		t.Errorf("description %q, want %q, of %v", got, description, err)
	}
	if len(err.Error()) > 1000 {
		t.Errorf("%d bytes for the log", len(err.Error()))
	}
}

// describe returns the description that a caller receives, or "" for server_error.
func describe(err error, name string, google bool) string {
	var e *relyingparty.Error
	if !errors.As(err, &e) {
		return ""
	}
	description, _ := e.Description(name, google)
	return description
}

func TestSYNDropped(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		endpoint    providertest.Endpoint
		description string
	}{
		{providertest.Token, tokenTimeout},
		{providertest.Keys, keysTimeout},
		{providertest.UserInfo, readTimeout},
	} {
		t.Run(string(tt.endpoint), func(t *testing.T) {
			t.Parallel()
			idp := providertest.Start(t)
			idp.DropPackets(t, tt.endpoint)
			err := failedSignIn(t, idp, 300*time.Millisecond)
			checkFault(t, err, tt.description, context.DeadlineExceeded)
		})
	}
	t.Run("discovery", func(t *testing.T) {
		t.Parallel()
		idp := providertest.Start(t)
		idp.Issuer = "http://" + providertest.BlackHole(t)
		checkFault(t, failedSignIn(t, idp, 100*time.Millisecond), readTimeout, context.DeadlineExceeded)
	})
}

func TestConnectionRefused(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener.Close()
	idp := providertest.Start(t, func(s *providertest.Settings) {
		s.Metadata["token_endpoint"] = "http://" + listener.Addr().String() + "/token"
	})
	checkFault(t, failedSignIn(t, idp, 0), "", nil)
}

// With HTTP/2, the server may reset a stream without closing the connection.
func TestHTTP2(t *testing.T) {
	t.Parallel()
	idp := providertest.StartTLS(t)
	if identity, err := signIn(t, newProvider(t, idp, nil), idp, newRequest()); err != nil || identity.Subject != providertest.Alice.Subject {
		t.Fatal(identity, err)
	}
	idp.SetFault(providertest.Token, providertest.AbortHandler)
	checkFault(t, failedSignIn(t, idp, 0), reset, nil)
	idp.SetFault(providertest.Token, providertest.StallBody)
	checkFault(t, failedSignIn(t, idp, 300*time.Millisecond), readTimeout, context.DeadlineExceeded)
}

func TestUntrustedCertificate(t *testing.T) {
	t.Parallel()
	idp := providertest.StartTLS(t)
	p := newProvider(t, idp, func(c *relyingparty.Config) { c.Transport = http.DefaultTransport })
	_, err := p.AuthenticationURL(t.Context(), newRequest())
	checkFault(t, err, "", nil)
	if !strings.Contains(err.Error(), "certificate") {
		t.Error(err)
	}
}

// A canceled request is not treated as a failure of the provider.
func TestCallerLeaves(t *testing.T) {
	t.Parallel()
	idp := providertest.Start(t)
	p := newProvider(t, idp, nil)
	r := newRequest()
	c := providerResponse(t, p, idp, r)
	ctx, cancel := context.WithCancel(t.Context())
	idp.SetFault(providertest.Token, func(w http.ResponseWriter, r *http.Request) {
		cancel()
		providertest.NeverRespond(w, r)
	})
	_, err := p.Exchange(ctx, c, r)
	checkFault(t, err, "", context.Canceled)
}

// A response is read only up to the size limit.
func TestEndlessAnswer(t *testing.T) {
	t.Parallel()
	body := &endlessTransport{}
	idp := providertest.New(issuer)
	p := newProvider(t, idp, func(c *relyingparty.Config) { c.Transport = body })
	_, err := p.AuthenticationURL(t.Context(), newRequest())
	checkFault(t, err, "", relyingparty.ErrTooLarge)
	if body.read > 2<<20 || !body.closed {
		t.Errorf("%d bytes read, closed %t", body.read, body.closed)
	}
}

// endlessTransport is a transport with endless response bodies.
type endlessTransport struct {
	read   int
	closed bool
}

func (e *endlessTransport) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: e}, nil
}

func (e *endlessTransport) Read(p []byte) (int, error) {
	if e.read += len(p); e.read > 1<<26 {
		return 0, errors.New("read 64 MiB")
	}
	return len(p), nil
}

func (e *endlessTransport) Close() error {
	e.closed = true
	return nil
}

func TestProviderErrorCode(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name          string
		fault         providertest.Fault
		google, other string
	}{
		{"RFC code", providertest.ErrorResponse(400, "invalid_grant"), "Google Error - 400 invalid_grant", "Google Error - 400 error getting token"},
		{"no code", providertest.Status(502), "Google Error - 502 error getting token", "Google Error - 502 error getting token"},
		{"code with a line break", providertest.ErrorResponse(400, "a\r\nb"), "Google Error - 400 error getting token", "Google Error - 400 error getting token"},
		{"code with a quote", providertest.ErrorResponse(400, `a"b`), "Google Error - 400 error getting token", "Google Error - 400 error getting token"},
		{"code with a letter of no ASCII", providertest.ErrorResponse(400, "é"), "Google Error - 400 error getting token", "Google Error - 400 error getting token"},
		{"long code", providertest.ErrorResponse(400, strings.Repeat("x", 101)), "Google Error - 400 error getting token", "Google Error - 400 error getting token"},
		{"code of another type", providertest.JSON(400, map[string]any{"error": map[string]any{"code": 400}}), "Google Error - 400 error getting token", "Google Error - 400 error getting token"},
		{"an API's status", providertest.JSON(503, []byte(`{"error":{"code":503,"message":"The service is currently unavailable.","status":"UNAVAILABLE"}}`)), "Google Error - 503 UNAVAILABLE", "Google Error - 503 error getting token"},
		{"an API's status and reason", providertest.JSON(503, []byte(`{"error":{"code":503,"errors":[{"domain":"global","reason":"backendError"}],"status":"UNAVAILABLE"}}`)), "Google Error - 503 UNAVAILABLE", "Google Error - 503 error getting token"},
		{"an API's reason", providertest.JSON(401, []byte(`{"error":{"errors":[{"domain":"global","reason":"authError"},{"reason":"other"}],"code":401,"message":"Invalid Credentials"}}`)), "Google Error - 401 authError", "Google Error - 401 error getting token"},
		{"an API's status with markup", providertest.JSON(400, []byte(`{"error":{"status":"\"\r\n<b>"}}`)), "Google Error - 400 error getting token", "Google Error - 400 error getting token"},
		{"an API's status with 200", providertest.JSON(200, []byte(`{"error":{"status":"UNAVAILABLE"}}`)), "Google Error - 200 error getting token", "Google Error - 200 error getting token"},
		{"in HTML", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(502); providertest.SendHTML(w, r) }, "Google Error - 502 error getting token", "Google Error - 502 error getting token"},
		{"in a form", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/x-www-form-urlencoded")
			w.WriteHeader(400)
			_, _ = io.WriteString(w, "error=invalid_grant&error_description=x")
		}, "Google Error - 400 invalid_grant", "Google Error - 400 error getting token"},
		{"with 200", providertest.ErrorResponse(200, "slow_down"), "Google Error - 200 slow_down", "Google Error - 200 error getting token"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			idp := providertest.Start(t)
			idp.SetFault(providertest.Token, tt.fault)
			err := failedSignIn(t, idp, 0)
			if got := describe(err, "Google", true); got != tt.google {
				t.Errorf("Google: %q", got)
			}
			if got := describe(err, "Google", false); got != tt.other {
				t.Errorf("other: %q", got)
			}
			if text := err.Error(); strings.ContainsAny(text, "\r\n") || len(text) > 700 {
				t.Errorf("for the log: %q", text)
			}
		})
	}
}

func TestDescriptionCharset(t *testing.T) {
	t.Parallel()
	e := &relyingparty.Error{Kind: relyingparty.TokenRejected, Status: 500}
	if got, _ := e.Description("Klinikum \"Köln\"\r\n", false); got != "Klinikum ?K?ln??? Error - 500 error getting token" {
		t.Errorf("%q", got)
	}
}

func TestErrorText(t *testing.T) {
	t.Parallel()
	cause := errors.New("cause")
	for kind, want := range map[relyingparty.ErrorKind]string{
		relyingparty.TokenTimeout: "token time-out: cause", relyingparty.KeysTimeout: "keys time-out: cause",
		relyingparty.TokenRejected: "refused: cause", relyingparty.ConnectionReset: "connection reset: cause",
		relyingparty.ReadTimeout: "read time-out: cause", relyingparty.AuthorizationFailed: "declined: cause", 0: "kind 0: cause",
	} {
		err := &relyingparty.Error{Kind: kind, Err: cause}
		if err.Error() != want || !errors.Is(err, cause) {
			t.Errorf("%q, want %q", err, want)
		}
	}
	if got := (&relyingparty.Error{Kind: relyingparty.ConnectionReset}).Error(); got != "connection reset" {
		t.Error(got)
	}
}
