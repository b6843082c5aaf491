package fhirapp

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/slowbody"
)

// A body sent one byte at a time is aborted early on every path and does not delay server shutdown.
func TestDrip(t *testing.T) {
	t.Parallel()
	const form, fhir = "application/x-www-form-urlencoded", "application/fhir+json"
	guarded, open := newGateway(t, gatewaytest.ExampleText(t)).Server, newGateway(t, gatewaytest.ExampleText(t, "\t\tfhir_bearer\n", "")).Server
	uploads := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer slowbody.FHIRPace.Limit(w, r)()
		_, _ = io.Copy(io.Discard, r.Body)
	})
	long := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer slowbody.FHIRPace.Limit(w, r)()
		_, _ = w.Write(make([]byte, 100_000))
	})
	for _, test := range []struct {
		name               string
		handler            http.Handler
		method, path, kind string
	}{
		{"token", guarded, "POST", "/oauth2/token", form},
		{"introspection", guarded, "POST", "/oauth2/introspect", form},
		{"revocation", guarded, "POST", "/oauth2/revoke", form},
		{"pushed request", guarded, "POST", "/oauth2/par", form},
		{"userinfo", guarded, "POST", "/oauth2/userinfo", form},
		{"sign-in", guarded, "POST", "/oauth2/login", form},
		{"sign-out", guarded, "POST", "/oauth2/logout", form},
		{"a form of another type", guarded, "POST", "/oauth2/token", "text/plain"},
		{"another method", guarded, "PUT", "/oauth2/token", form},
		{"without a token", guarded, "POST", "/fhir/R4/Patient", fhir},
		{"expansion", open, "POST", "/fhir/R4/ValueSet/$expand", fhir},
		{"body read by the next handler", uploads, "POST", "/fhir/R4/Patient", fhir},
		{"a long answer before the body", long, "POST", "/fhir/R4/Patient", fhir},
	} {
		t.Run(test.name, func(t *testing.T) {
			gatewaytest.CheckSlowBody(t, test.handler, test.method, test.path, "Content-Type: "+test.kind)
		})
	}
}

// slowBody is a request body that returns n bytes every two seconds.
type slowBody struct{ n, remaining int }

func (b *slowBody) Read(p []byte) (int, error) {
	if b.remaining == 0 {
		return 0, io.EOF
	}
	time.Sleep(2 * time.Second)
	n := min(b.n, b.remaining, len(p))
	b.remaining -= n
	return n, nil
}

// A slow connection is not aborted, and the gateway's own processing time is ignored.
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
				_, conn := gatewaytest.DialPipe(t, &test.protocols, http.HandlerFunc(slowHandler))
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
				if answer := gatewaytest.ReadBody(t, response); response.StatusCode != test.status || test.status == http.StatusOK && answer != "<nil> <nil>" {
					t.Errorf("%d %s", response.StatusCode, answer)
				}
				time.Sleep(time.Minute) // keeps the bubble running while the transport still reads the body
			})
		})
	}
}

// slowHandler waits before, while and after it reads the body.
func slowHandler(w http.ResponseWriter, r *http.Request) {
	defer slowbody.FHIRPace.Limit(w, r)()
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
