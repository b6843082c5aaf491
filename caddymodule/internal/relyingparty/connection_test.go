package relyingparty_test

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
)

// peer accepts connections and does one thing with each.
func peer(t *testing.T, do func(*net.TCPConn)) (address string) {
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

// What goes wrong before there is a request, or where no HTTP is spoken.
func TestConnectionFaults(t *testing.T) {
	t.Parallel()
	hello := func(c *net.TCPConn) { _, _ = c.Read(make([]byte, 1)) } // of TLS, or the request
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
		{"token: gzip that is none", "http://", providertest.Token, say("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 20\r\n\r\n01234567890123456789"), "", nil},
		{"token: chunks that are none", "http://", providertest.Token, say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n"), "", nil},
		{"token: no content", "http://", providertest.Token, say("HTTP/1.1 204 No Content\r\n\r\n"), "General Hospital Error - 204 error getting token", nil},
		{"token: 100 for ever", "http://", providertest.Token, say("HTTP/1.1 100 Continue\r\n\r\n"), readTimeout, context.DeadlineExceeded},
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
			address := tt.scheme + peer(t, tt.do) + "/x"
			idp.Change(func(s *providertest.Settings) { s.Metadata[member] = address })
			timeout := 5 * time.Second
			if tt.cause != nil {
				timeout = 300 * time.Millisecond
			}
			checkFault(t, failedSignIn(t, idp, timeout), tt.description, tt.cause)
		})
	}
}
