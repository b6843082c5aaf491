package fhirapp

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
)

// echo is a backend that answers with the headers it was sent.
var echo = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/fhir+json")
	_ = json.NewEncoder(w).Encode(r.Header)
})

// forwarded are the headers that echo was sent.
func forwarded(t *testing.T, r *http.Response) (sent http.Header) {
	t.Helper()
	if err := json.NewDecoder(r.Body).Decode(&sent); err != nil || r.StatusCode != http.StatusOK {
		t.Fatalf("status %d: %v", r.StatusCode, err)
	}
	return sent
}

func TestBearerPasses(t *testing.T) {
	t.Parallel()
	g := exampleGateway(t, echo)
	token := g.Token()
	r := httptest.NewRequest(http.MethodGet, "/fhir/R4/Patient", nil)
	r.Header.Set("Authorization", "bearer "+token)
	forged := []string{"Remote-User", "X-Forwarded-User", "X_Remote_User", "X-HTTP-Method-Override", "X-Org", "X-Api-Key"}
	for _, name := range forged {
		r.Header[name] = []string{"admin"}
	}
	r.Header.Set("X-Request-Id", "1")
	r.AddCookie(&http.Cookie{Name: "theirs", Value: "admin"})
	sent := forwarded(t, g.Send(r))
	if sent.Get("X-Request-Id") != "1" || sent["Cookie"] != nil || sent["Authorization"] != nil {
		t.Errorf("the backend was sent %v", sent)
	}
	for name, values := range sent {
		if slices.Contains(values, "admin") {
			t.Errorf("the backend was sent %s: %q", name, values)
		}
	}
}

// Only proxies of trusted_proxies can tell the backend where a request came from.
func TestBearerPassesAddressesOfTrustedProxies(t *testing.T) {
	t.Parallel()
	for trusted, passes := range map[string]bool{"192.0.2.0/24": true, "198.51.100.0/24": false} {
		g := exampleGateway(t, echo, gatewaytest.ServersBlock, gatewaytest.ServersBlock+"\t\ttrusted_proxies static "+trusted+"\n")
		r := httptest.NewRequest(http.MethodGet, "/fhir/R4/Patient", nil)
		r.Header.Set("Authorization", "Bearer "+g.Token())
		names := []string{"Forwarded", "X-Real-IP", "True-Client-IP", "X-Forwarded-Port"}
		for _, name := range append(names, "X-Forwarded-For") {
			r.Header.Set(name, "203.0.113.7")
		}
		r.Header.Set("X-Request-Id", "1")
		sent := forwarded(t, g.Send(r))
		client, others := "192.0.2.1", ""
		if passes {
			client, others = "203.0.113.7, 192.0.2.1", "203.0.113.7"
		}
		if sent.Get("X-Forwarded-For") != client || sent.Get("X-Request-Id") != "1" {
			t.Errorf("trusted_proxies %s: the backend was sent %v", trusted, sent)
		}
		for _, name := range names {
			if sent.Get(name) != others {
				t.Errorf("trusted_proxies %s: the backend was sent %s %q", trusted, name, sent[name])
			}
		}
	}
}

func TestBearerSetsPlaceholders(t *testing.T) {
	t.Parallel()
	g := newGateway(t, gatewaytest.ExampleText(t, "fhir_expand\n", `respond "{http.auth.user.id} {http.auth.user.client_id} {http.auth.user.scope} {http.auth.user.issuer} {http.auth.user.fhir_user} {http.request.header.X-User} {http.request.header.Authorization}"
		request_header X-User {http.auth.user.id}
`))
	got := gatewaytest.Read(t, g.Get("/fhir/R4/Patient", g.Token(), "X-User", "mallory"))
	const issuer = "https://localhost:8443"
	if want := "alice demo-app openid user/*.rs " + issuer + " " + issuer + "/fhir/R4/Practitioner/alice alice "; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestBearerForwardsTokenIfAsked(t *testing.T) {
	t.Parallel()
	for names, passed := range map[string]bool{"fhir Authorization": true, "authorization": true, "*": false, "fhir Auth* *ization": false} {
		g := exampleGateway(t, echo, "fhir_bearer\n", "fhir_bearer {\n\t\t\tforward_header "+names+"\n\t\t}\n")
		token := g.Token()
		want := []string{"Bearer " + token}
		if !passed {
			want = nil
		}
		if sent := forwarded(t, g.Get("/fhir/R4/Patient", token, "Remote-User", "3")); !slices.Equal(sent["Authorization"], want) || sent["Remote-User"] != nil {
			t.Errorf("forward_header %s: the backend was sent %v", names, sent)
		}
	}
}

// With forward_header, no other header is passed on, no cookie of the gateway, and the guard still finds the
// token.
func TestBearerForwardsNamedHeaders(t *testing.T) {
	t.Parallel()
	g := newGateway(t, gatewaytest.ExampleText(t, "fhir_bearer\n\t\tfhir_expand\n", `fhir_bearer {
			forward_header fhir X-Progress Cookie
		}
		respond "{http.request.header.Prefer} {http.request.header.X-Progress} {http.request.header.Cookie} {http.request.header.X-Ward} {http.request.header.Authorization}"
`))
	token := g.Token() // and the cookies of a session come along from now on
	if got := gatewaytest.Read(t, g.Get("/fhir/R4/Patient", token, "Prefer", "a", "X-Progress", "b", "Cookie", "theirs=c", "X-Ward", "d")); got != "a b theirs=c  " {
		t.Errorf("the next handler got %q", got)
	}
}

// After an upgrade the connection is a tunnel past the guard: HTTP/2 is never asked of
// the backend, and nothing is where no token is needed.
func TestNoTunnelPastTheGuard(t *testing.T) {
	t.Parallel()
	g := exampleGateway(t, echo)
	token := g.Token()
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
			sent := forwarded(t, g.Get(tt.target, token, "Connection", "Upgrade", "Upgrade", tt.upgrade, "HTTP2-Settings", "AAMAAABkAAQAAP__"))
			upgrade := ""
			if tt.passes {
				upgrade = tt.upgrade
			}
			if sent.Get("Upgrade") != upgrade || sent.Get("HTTP2-Settings") != "" {
				t.Errorf("the backend was sent %v", sent)
			}
		})
	}
}

// RFC 9112 §7.1.2: a client may send any trailer once it has announced one, when the
// guard has already checked the headers. None reaches the backend.
func TestNoTrailerPastTheGuard(t *testing.T) {
	t.Parallel()
	sent := make(chan http.Header, 1)
	g := exampleGateway(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		sent <- r.Trailer
	}))
	token := g.Token()
	conn, err := net.Dial("tcp", gatewaytest.Backend(t, g.Server))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, err = fmt.Fprintf(conn, "POST /fhir/R4/Patient/_search HTTP/1.1\r\nHost: localhost:8443\r\nAuthorization: Bearer %s\r\n"+
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
