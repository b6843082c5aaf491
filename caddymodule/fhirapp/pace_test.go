package fhirapp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/pace"
)

// pipeListener accepts one connection, which is to no network.
type pipeListener chan net.Conn

func (l pipeListener) Accept() (net.Conn, error) {
	if conn, ok := <-l; ok {
		return conn, nil
	}
	return nil, net.ErrClosed
}

func (l pipeListener) Close() error   { close(l); return nil }
func (l pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

// dialPipe serves a handler over one connection, as if by TLS.
func dialPipe(t *testing.T, protocols *http.Protocols, handler http.Handler) (*http.Server, net.Conn) {
	t.Helper()
	near, far := net.Pipe()
	l := make(pipeListener, 1)
	l <- far
	server := &http.Server{Protocols: protocols, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.TLS = &tls.ConnectionState{ServerName: "localhost"}
		handler.ServeHTTP(w, r)
	})}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = errors.Join(near.Close(), server.Close()) })
	return server, near
}

// A body that comes a byte at a time ends soon, wherever it is sent, and does not hold
// up the end of the server.
func TestDrip(t *testing.T) {
	t.Parallel()
	const form, fhir = "application/x-www-form-urlencoded", "application/fhir+json"
	example := gatewaytest.ExampleText(t, "\t\tfhir_base /fhir/R4\n", "\t\tfhir_base /fhir/R4\n\t\tregistration {\n\t\t\tinitial_access_token demo-registration\n\t\t}\n")
	guarded, open := newGateway(t, example).Server, newGateway(t, gatewaytest.ExampleText(t, "\t\tfhir_bearer\n", "")).Server
	uploads := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer pace.FHIR.Limit(w, r)()
		_, _ = io.Copy(io.Discard, r.Body)
	})
	long := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer pace.FHIR.Limit(w, r)()
		_, _ = w.Write(make([]byte, 100_000))
	})
	now := time.Now()
	for _, test := range []struct {
		name                      string
		handler                   http.Handler
		method, path, kind, token string
	}{
		{"token", guarded, "POST", "/oauth2/token", form, ""},
		{"introspection", guarded, "POST", "/oauth2/introspect", form, ""},
		{"revocation", guarded, "POST", "/oauth2/revoke", form, ""},
		{"pushed request", guarded, "POST", "/oauth2/par", form, ""},
		{"userinfo", guarded, "POST", "/oauth2/userinfo", form, ""},
		{"sign-in", guarded, "POST", "/oauth2/login", form, ""},
		{"sign-out", guarded, "POST", "/oauth2/logout", form, ""},
		{"registration", guarded, "POST", "/oauth2/register", "application/json", "demo-registration"},
		{"a form of another type", guarded, "POST", "/oauth2/token", "text/plain", ""},
		{"another method", guarded, "PUT", "/oauth2/token", form, ""},
		{"without a token", guarded, "POST", "/fhir/R4/Patient", fhir, ""},
		{"expansion", open, "POST", "/fhir/R4/ValueSet/$expand", fhir, ""},
		{"what the next handler reads", uploads, "POST", "/fhir/R4/Patient", fhir, ""},
		{"a long answer before the body", long, "POST", "/fhir/R4/Patient", fhir, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(time.Until(now)) // the bubble begins in the past, and the gateway was made outside
				server, conn := dialPipe(t, nil, test.handler)
				head := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: localhost:8443\r\nContent-Type: %s\r\nContent-Length: 40000\r\n", test.method, test.path, test.kind)
				if test.token != "" {
					head += "Authorization: Bearer " + test.token + "\r\n"
				}
				began := time.Now()
				var client sync.WaitGroup
				defer client.Wait()
				client.Go(func() { drip(conn, head+"\r\n") })
				client.Go(func() { _, _ = io.Copy(io.Discard, conn) })
				time.Sleep(time.Second)
				if err := server.Shutdown(context.Background()); err != nil {
					t.Error(err)
				}
				if took := time.Since(began); took > 25*time.Second {
					t.Errorf("the server ended after %v", took)
				}
			})
		})
	}
}

// drip sends the head of a request at once, and its body a byte at a time.
func drip(conn net.Conn, head string) {
	_, err := io.WriteString(conn, head)
	for sent := 0; err == nil && sent < 100; sent++ {
		time.Sleep(2 * time.Second)
		_, err = io.WriteString(conn, "x")
	}
	_ = conn.Close()
}

// slowBody gives n bytes at a time, and takes two seconds for them.
type slowBody struct{ n, left int }

func (b *slowBody) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, io.EOF
	}
	time.Sleep(2 * time.Second)
	n := min(b.n, b.left, len(p))
	b.left -= n
	return n, nil
}

// A slow line is no drip, and the time that we take for an answer is not the client's.
func TestSlowLine(t *testing.T) {
	t.Parallel()
	var http1, http2 http.Protocols
	http1.SetHTTP1(true)
	http2.SetUnencryptedHTTP2(true)
	for _, test := range []struct {
		name      string
		protocols http.Protocols
		pace      int
		status    int
	}{
		{"HTTP/1.1", http1, 1000, http.StatusOK},
		{"HTTP/2", http2, 1000, http.StatusOK},
		{"drip by HTTP/1.1", http1, 1, http.StatusRequestTimeout},
		{"drip by HTTP/2", http2, 1, http.StatusRequestTimeout},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, conn := dialPipe(t, &test.protocols, http.HandlerFunc(slowHandler))
				transport := &http.Transport{
					Protocols:   &test.protocols,
					DialContext: func(context.Context, string, string) (net.Conn, error) { return conn, nil },
				}
				defer transport.CloseIdleConnections()
				request, err := http.NewRequest(http.MethodPost, "http://localhost", &slowBody{test.pace, 40_000})
				if err != nil {
					t.Fatal(err)
				}
				response, err := transport.RoundTrip(request)
				if err != nil {
					t.Fatal(err)
				}
				if answer := gatewaytest.Read(t, response); response.StatusCode != test.status || test.status == http.StatusOK && answer != "<nil> <nil>" {
					t.Errorf("%d %s", response.StatusCode, answer)
				}
				time.Sleep(time.Minute) // the transport is still reading the body
			})
		})
	}
}

// slowHandler takes its time before it reads a body, within and after.
func slowHandler(w http.ResponseWriter, r *http.Request) {
	defer pace.FHIR.Limit(w, r)()
	time.Sleep(time.Minute)
	_, err := r.Body.Read(make([]byte, 1))
	if err == nil {
		time.Sleep(time.Minute)
		_, err = io.Copy(io.Discard, r.Body)
	}
	if err != nil {
		w.WriteHeader(http.StatusRequestTimeout)
	}
	time.Sleep(time.Minute)
	_, _ = fmt.Fprint(w, err, r.Context().Err())
}
