package upstream_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/upstream"
)

const (
	tokenTimeout = "Timeout occurred in calling IdP token endpoint"
	keysTimeout  = "Timeout in calling jwks uri"
	reset        = "Connection reset"
	readTimeout  = "Read timed out"
)

// fault is a fault of one endpoint, and what the client is told: a description,
// or, where there is none, nothing but server_error.
type fault struct {
	name        string
	endpoint    authorizetest.Endpoint
	fault       authorizetest.Fault
	description string
	cause       error
}

var faults = []fault{
	{"token: silent", authorizetest.Token, authorizetest.Silent, tokenTimeout, context.DeadlineExceeded},
	{"token: header stalls", authorizetest.Token, authorizetest.StallHeader, readTimeout, context.DeadlineExceeded},
	{"token: body stalls", authorizetest.Token, authorizetest.Stall, readTimeout, context.DeadlineExceeded},
	{"token: body drips", authorizetest.Token, authorizetest.Drip, readTimeout, context.DeadlineExceeded},
	{"token: RST within the body", authorizetest.Token, authorizetest.Reset, reset, nil},
	{"token: RST before the answer", authorizetest.Token, authorizetest.ResetAtOnce, reset, nil},
	{"token: FIN before the answer", authorizetest.Token, authorizetest.Close, reset, nil},
	{"token: FIN within the body", authorizetest.Token, authorizetest.Truncate, reset, nil},
	{"token: 500", authorizetest.Token, authorizetest.Status(500), "General Hospital Error - 500 error getting token", nil},
	{"token: 503", authorizetest.Token, authorizetest.Status(503), "General Hospital Error - 503 error getting token", nil},
	{"token: 400", authorizetest.Token, authorizetest.ErrorResponse(400, "invalid_grant"), "General Hospital Error - 400 error getting token", nil},
	{"token: 401", authorizetest.Token, authorizetest.ErrorResponse(401, "invalid_client"), "General Hospital Error - 401 error getting token", nil},
	{"token: HTML", authorizetest.Token, authorizetest.HTML, "General Hospital Error - 200 error getting token", nil},
	{"token: another JSON", authorizetest.Token, authorizetest.JSON(200, []string{"x"}), "General Hospital Error - 200 error getting token", nil},
	{"token: error with 200", authorizetest.Token, authorizetest.ErrorResponse(200, "invalid_grant"), "General Hospital Error - 200 error getting token", nil},
	{"token: no access token", authorizetest.Token, authorizetest.JSON(200, map[string]string{"id_token": "x"}), "General Hospital Error - 200 error getting token", nil},
	{"token: no ID token", authorizetest.Token, authorizetest.JSON(200, map[string]string{"access_token": "x", "token_type": "Bearer"}), "", upstream.ErrIDToken},
	{"token: 10 MB", authorizetest.Token, authorizetest.Huge, "", upstream.ErrTooLarge},
	{"token: redirect", authorizetest.Token, authorizetest.Redirect("https://attacker.example/"), "", upstream.ErrRedirect},

	{"keys: silent", authorizetest.Keys, authorizetest.Silent, keysTimeout, context.DeadlineExceeded},
	{"keys: body stalls", authorizetest.Keys, authorizetest.Stall, keysTimeout, context.DeadlineExceeded},
	{"keys: RST", authorizetest.Keys, authorizetest.Reset, reset, nil},
	{"keys: 500", authorizetest.Keys, authorizetest.Status(500), "", upstream.ErrStatus},
	{"keys: HTML", authorizetest.Keys, authorizetest.HTML, "", upstream.ErrKeys},
	{"keys: 10 MB", authorizetest.Keys, authorizetest.Huge, "", upstream.ErrTooLarge},
	{"keys: redirect", authorizetest.Keys, authorizetest.Redirect("https://attacker.example/"), "", upstream.ErrRedirect},
	{"keys: none", authorizetest.Keys, authorizetest.JSON(200, []byte(`{"keys":[]}`)), "", upstream.ErrUnknownKey},

	{"userinfo: silent", authorizetest.UserInfo, authorizetest.Silent, readTimeout, context.DeadlineExceeded},
	{"userinfo: RST", authorizetest.UserInfo, authorizetest.Reset, reset, nil},
	{"userinfo: 500", authorizetest.UserInfo, authorizetest.Status(500), "", upstream.ErrStatus},
	{"userinfo: HTML", authorizetest.UserInfo, authorizetest.HTML, "", upstream.ErrUserInfo},
	{"userinfo: 10 MB", authorizetest.UserInfo, authorizetest.Huge, "", upstream.ErrTooLarge},
	{"userinfo: redirect", authorizetest.UserInfo, authorizetest.Redirect("https://attacker.example/"), "", upstream.ErrRedirect},

	{"discovery: silent", authorizetest.Discovery, authorizetest.Silent, readTimeout, context.DeadlineExceeded},
	{"discovery: body stalls", authorizetest.Discovery, authorizetest.Stall, readTimeout, context.DeadlineExceeded},
	{"discovery: RST", authorizetest.Discovery, authorizetest.Reset, reset, nil},
	{"discovery: FIN", authorizetest.Discovery, authorizetest.Close, reset, nil},
	{"discovery: 500", authorizetest.Discovery, authorizetest.Status(500), "", upstream.ErrStatus},
	{"discovery: HTML", authorizetest.Discovery, authorizetest.HTML, "", upstream.ErrMetadata},
	{"discovery: 10 MB", authorizetest.Discovery, authorizetest.Huge, "", upstream.ErrTooLarge},
	{"discovery: redirect", authorizetest.Discovery, authorizetest.Redirect("https://attacker.example/"), "", upstream.ErrRedirect},
}

func TestFaults(t *testing.T) {
	t.Parallel()
	for _, tt := range faults {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			idp := authorizetest.Start(t)
			idp.Fail(tt.endpoint, tt.fault)
			err := failedSignIn(t, idp, shortTimeout(tt))
			checkFault(t, err, tt.description, tt.cause)
			if got := count(idp, tt.endpoint); got != 1 {
				t.Errorf("asked %d times", got)
			}
		})
	}
}

// shortTimeout is short where the fault is a time-out.
func shortTimeout(tt fault) time.Duration {
	if errors.Is(tt.cause, context.DeadlineExceeded) {
		return 300 * time.Millisecond
	}
	return 0
}

// failedSignIn is the error of a sign-in, at whatever step.
func failedSignIn(t *testing.T, idp *authorizetest.Provider, timeout time.Duration) error {
	t.Helper()
	p := newProvider(t, idp, func(c *upstream.Config) { c.Timeout = timeout })
	r := newRequest()
	address, err := p.AuthenticationURL(t.Context(), r)
	if err != nil {
		return err
	}
	_, err = p.Exchange(t.Context(), callback(idp.Authorize(t, address)), r)
	return err
}

// refused tries to sign in at a provider that was changed, which must not work, because of an error.
func refused(t *testing.T, name string, cause error, change func(*authorizetest.Settings)) {
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		checkFault(t, failedSignIn(t, authorizetest.Start(t, change), 0), "", cause)
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

// describe is how a caller gets at the description; empty stands for
// server_error.
func describe(err error, name string, google bool) string {
	var e *upstream.Error
	if !errors.As(err, &e) {
		return ""
	}
	description, _ := e.Description(name, google)
	return description
}

func TestSYNDropped(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		endpoint    authorizetest.Endpoint
		description string
	}{
		{authorizetest.Token, tokenTimeout},
		{authorizetest.Keys, keysTimeout},
		{authorizetest.UserInfo, readTimeout},
	} {
		t.Run(string(tt.endpoint), func(t *testing.T) {
			t.Parallel()
			idp := authorizetest.Start(t)
			idp.Drop(t, tt.endpoint)
			err := failedSignIn(t, idp, 300*time.Millisecond)
			checkFault(t, err, tt.description, context.DeadlineExceeded)
		})
	}
	t.Run("discovery", func(t *testing.T) {
		t.Parallel()
		idp := authorizetest.Start(t)
		idp.Issuer = "http://" + authorizetest.BlackHole(t)
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
	idp := authorizetest.Start(t, func(s *authorizetest.Settings) {
		s.Metadata["token_endpoint"] = "http://" + listener.Addr().String() + "/token"
	})
	checkFault(t, failedSignIn(t, idp, 0), "", nil)
}

// Over HTTP/2, the other side ends the stream and leaves the connection.
func TestHTTP2(t *testing.T) {
	t.Parallel()
	idp := authorizetest.StartTLS(t)
	if identity, err := signIn(t, newProvider(t, idp, nil), idp, newRequest()); err != nil || identity.Subject != authorizetest.Alice.Subject {
		t.Fatal(identity, err)
	}
	idp.Fail(authorizetest.Token, authorizetest.Abort)
	checkFault(t, failedSignIn(t, idp, 0), reset, nil)
	idp.Fail(authorizetest.Token, authorizetest.Stall)
	checkFault(t, failedSignIn(t, idp, 300*time.Millisecond), readTimeout, context.DeadlineExceeded)
}

func TestUntrustedCertificate(t *testing.T) {
	t.Parallel()
	idp := authorizetest.StartTLS(t)
	p := newProvider(t, idp, func(c *upstream.Config) { c.Transport = http.DefaultTransport })
	_, err := p.AuthenticationURL(t.Context(), newRequest())
	checkFault(t, err, "", nil)
	if !strings.Contains(err.Error(), "certificate") {
		t.Error(err)
	}
}

// Who leaves is not a fault of the provider.
func TestCallerLeaves(t *testing.T) {
	t.Parallel()
	idp := authorizetest.Start(t)
	p := newProvider(t, idp, nil)
	r := newRequest()
	c := answer(t, p, idp, r)
	ctx, cancel := context.WithCancel(t.Context())
	idp.Fail(authorizetest.Token, func(w http.ResponseWriter, r *http.Request) {
		cancel()
		authorizetest.Silent(w, r)
	})
	_, err := p.Exchange(ctx, c, r)
	checkFault(t, err, "", context.Canceled)
}

// No more is read of an answer than is of use.
func TestEndlessAnswer(t *testing.T) {
	t.Parallel()
	body := &endless{}
	idp := authorizetest.New(issuer)
	p := newProvider(t, idp, func(c *upstream.Config) { c.Transport = body })
	_, err := p.AuthenticationURL(t.Context(), newRequest())
	checkFault(t, err, "", upstream.ErrTooLarge)
	if body.read > 2<<20 || !body.closed {
		t.Errorf("%d bytes read, closed %t", body.read, body.closed)
	}
}

// endless is a transport whose answers have a body without an end.
type endless struct {
	read   int
	closed bool
}

func (e *endless) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: e}, nil
}

func (e *endless) Read(p []byte) (int, error) {
	if e.read += len(p); e.read > 1<<26 {
		return 0, errors.New("read 64 MiB")
	}
	return len(p), nil
}

func (e *endless) Close() error {
	e.closed = true
	return nil
}
