package e2e

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// A backend that accepts a protocol upgrade cannot bypass the guard. The connection is not upgraded, except to WebSocket with a
// token.
func TestNoTunnelToBackend(t *testing.T) {
	skipOnReplicas(t, "nginx does not upgrade connections by default")
	backend := httptest.NewServer(http.HandlerFunc(agree))
	defer backend.Close()
	g := startTestGateway(t, "gateway-tunnel", strings.TrimPrefix(backend.URL, "http://"))
	token := g.serviceToken(t)
	for _, tt := range []struct {
		path, token, upgrade string
		want                 int
	}{
		{"/fhir/R4/metadata", "", "h2c", http.StatusOK},
		{"/fhir/R4/metadata", "", "websocket", http.StatusOK},
		{"/fhir/R4/Patient", "", "websocket", http.StatusUnauthorized},
		{"/fhir/R4/Patient", token, "h2c", http.StatusOK},
		{"/fhir/R4/Patient", token, "websocket", http.StatusSwitchingProtocols},
	} {
		t.Run(fmt.Sprintf("%s, %s, token %t", tt.path, tt.upgrade, tt.token != ""), func(t *testing.T) {
			r := newRequest(t, http.MethodGet, g.issuer+tt.path, "")
			r.Header.Set("Connection", "Upgrade")
			r.Header.Set("Upgrade", tt.upgrade)
			r.Header.Set("HTTP2-Settings", "AAMAAABkAAQAAP__")
			if tt.token != "" {
				r.Header.Set("Authorization", "Bearer "+tt.token)
			}
			if got := g.statusOver1(t, r); got != tt.want {
				t.Errorf("status %d, want %d", got, tt.want)
			}
		})
	}
}

// agree switches to any protocol that the client requests.
func agree(w http.ResponseWriter, r *http.Request) {
	upgrade := r.Header.Get("Upgrade")
	if upgrade == "" {
		return
	}
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+upgrade+"\r\n\r\n")
}

// statusOver1 sends a request on a new HTTP/1.1 connection and returns the status.
func (g *gateway) statusOver1(t *testing.T, r *http.Request) int {
	t.Helper()
	dialer := tls.Dialer{Config: &tls.Config{RootCAs: g.roots, NextProtos: []string{"http/1.1"}}, NetDialer: new(net.Dialer)}
	conn, err := dialer.DialContext(t.Context(), "tcp", r.URL.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := r.Write(conn); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	return response.StatusCode
}
