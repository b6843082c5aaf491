package caddymodule

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// echo is a backend that tells what it was sent.
var echo = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/fhir+json")
	_ = r.Header.Write(w)
})

func TestBearerPasses(t *testing.T) {
	g := exampleGateway(t, echo)
	token := g.token()
	r := httptest.NewRequest(http.MethodGet, "/fhir/R4/Patient", nil)
	r.Header.Set("Authorization", "bearer "+token)
	for _, forged := range []string{"Remote-User", "X-Forwarded-User", "X_Remote_User", "X-HTTP-Method-Override"} {
		r.Header[forged] = []string{"admin"}
	}
	r.Header.Set("X-Request-Id", "1")
	r.AddCookie(&http.Cookie{Name: "theirs", Value: "kept"})
	response := g.send(r)
	sent := read(t, response)
	if response.StatusCode != http.StatusOK || !strings.Contains(sent, "X-Request-Id: 1") {
		t.Fatalf("%d: %s", response.StatusCode, sent)
	}
	if !strings.Contains(sent, "Cookie: theirs=kept") || strings.Contains(sent, "__Host-") {
		t.Errorf("the backend was sent %s", sent)
	}
	if strings.Contains(sent, "admin") || strings.Contains(sent, "Authorization") {
		t.Errorf("the backend was sent %s", sent)
	}
}

// Where a request came from, the backend is told by proxies that are trusted, and by
// nobody else.
func TestBearerPassesAddressesOfTrustedProxies(t *testing.T) {
	server := httptest.NewServer(echo)
	t.Cleanup(server.Close)
	t.Setenv("FHIR_BACKEND", strings.TrimPrefix(server.URL, "http://"))
	for range_, passes := range map[string]bool{"192.0.2.0/24": true, "198.51.100.0/24": false} {
		g := newGateway(t, exampleWith(t, "	fhir {\n", "	servers {\n\t\ttrusted_proxies static "+range_+"\n\t}\n	fhir {\n"))
		r := httptest.NewRequest(http.MethodGet, "/fhir/R4/Patient", nil)
		r.Header.Set("Authorization", "Bearer "+g.token())
		for _, name := range []string{"Forwarded", "X-Real-IP", "True-Client-IP", "X-Forwarded-Port", "X-Forwarded-For"} {
			r.Header.Set(name, "203.0.113.7")
		}
		r.Header.Set("X-Request-Id", "1")
		sent := read(t, g.send(r))
		if got := strings.Count(sent, "203.0.113.7"); got > 0 != passes || passes && got != 5 || !strings.Contains(sent, "X-Request-Id: 1") {
			t.Errorf("trusted_proxies %s: the backend was sent %s", range_, sent)
		}
	}
}

func TestBearerSetsPlaceholders(t *testing.T) {
	g := newGateway(t, exampleWith(t, "fhir_expand\n", `respond "{http.auth.user.id} {http.auth.user.client_id} {http.auth.user.scope} {http.auth.user.issuer} {http.auth.user.fhir_user} {http.request.header.X-User} {http.request.header.Authorization}"
		request_header X-User {http.auth.user.id}
`))
	r := httptest.NewRequest(http.MethodGet, "/fhir/R4/Patient", nil)
	r.Header.Set("Authorization", "Bearer "+g.token())
	r.Header.Set("X-User", "mallory")
	got := read(t, g.send(r))
	const issuer = "https://localhost:8443"
	if want := "alice demo-app openid user/*.rs " + issuer + " " + issuer + "/fhir/R4/Practitioner/alice alice "; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestBearerForwardsTokenIfAsked(t *testing.T) {
	server := httptest.NewServer(echo)
	t.Cleanup(server.Close)
	t.Setenv("FHIR_BACKEND", strings.TrimPrefix(server.URL, "http://"))
	g := newGateway(t, exampleWith(t, "fhir_bearer\n", "fhir_bearer {\n\t\t\tforward_token\n\t\t\tidentity_header X-Ward\n\t\t}\n"))
	r := httptest.NewRequest(http.MethodGet, "/fhir/R4/Patient", nil)
	r.Header.Set("Authorization", "Bearer "+g.token())
	r.Header.Set("X-Ward", "3")
	if sent := read(t, g.send(r)); !strings.Contains(sent, "Authorization: Bearer") || strings.Contains(sent, "X-Ward") {
		t.Errorf("the backend was sent %s", sent)
	}
}

// Nothing goes on but what is named, and the guard still finds the token.
func TestBearerForwardsNamedHeaders(t *testing.T) {
	g := newGateway(t, exampleWith(t, "fhir_bearer\n\t\tfhir_expand\n", `fhir_bearer {
			forward_header fhir X-Progress
		}
		respond "{http.request.header.Prefer} {http.request.header.X-Progress} {http.request.header.X-Ward} {http.request.header.Authorization}"
`))
	r := httptest.NewRequest(http.MethodGet, "/fhir/R4/Patient", nil)
	r.Header = http.Header{"Authorization": {"Bearer " + g.token()}, "Prefer": {"a"}, "X-Progress": {"b"}, "X-Ward": {"c"}}
	if got := read(t, g.send(r)); got != "a b  " {
		t.Errorf("the next handler got %q", got)
	}
}

// After an upgrade the connection is a tunnel past the guard: none to HTTP/2 is
// asked of the backend for anybody, and none at all where no token is needed.
func TestNoTunnelPastTheGuard(t *testing.T) {
	g := exampleGateway(t, echo)
	token := g.token()
	for _, tt := range []struct {
		name, target, upgrade string
		passes                bool
	}{
		{"HTTP/2, open to all", "/fhir/R4/metadata", "h2c", false},
		{"HTTP/2, with a token", "/fhir/R4/Patient", "h2c", false},
		{"HTTP/2 beside WebSocket", "/fhir/R4/Patient", "websocket, h2c", false},
		{"WebSocket, open to all", "/fhir/R4/metadata", "websocket", false},
		{"WebSocket, with a token", "/fhir/R4/Patient", "websocket", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodGet, tt.target, nil)
			r.Header.Set("Authorization", "Bearer "+token)
			r.Header.Set("Connection", "Upgrade")
			r.Header.Set("Upgrade", tt.upgrade)
			r.Header.Set("HTTP2-Settings", "AAMAAABkAAQAAP__")
			sent := read(t, g.send(r))
			if got := strings.Contains(sent, "Upgrade: "+tt.upgrade); got != tt.passes || strings.Contains(sent, "Http2-Settings") != tt.passes {
				t.Errorf("the backend was sent %s", sent)
			}
		})
	}
}

// RFC 9112 §7.1.2: a client may send any trailer once it has announced one, and the
// guard is done with the headers by then. None reaches the backend.
func TestNoTrailerPastTheGuard(t *testing.T) {
	sent := make(chan http.Header, 1)
	g := exampleGateway(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		sent <- r.Trailer
	}))
	token := g.token()
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { g.server.ServeHTTP(w, r) }))
	t.Cleanup(front.Close)
	conn, err := net.Dial("tcp", front.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, err = fmt.Fprintf(conn, "POST /fhir/R4/Patient HTTP/1.1\r\nHost: localhost:8443\r\nAuthorization: Bearer %s\r\n"+
		"Transfer-Encoding: chunked\r\nTrailer: X-Checksum\r\n\r\n2\r\n{}\r\n0\r\nX-Checksum: 1\r\nX-Forwarded-User: admin\r\n\r\n", token)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%v, %v", response, err)
	}
	if got := <-sent; len(got) > 0 {
		t.Errorf("the backend was sent the trailers %v", got)
	}
}
