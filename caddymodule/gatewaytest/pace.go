package gatewaytest

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// pipeListener is a listener for connections without a network.
type pipeListener chan net.Conn

func (l pipeListener) Accept() (net.Conn, error) {
	if conn, ok := <-l; ok {
		return conn, nil
	}
	return nil, net.ErrClosed
}

func (l pipeListener) Close() error   { close(l); return nil }
func (l pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

// DialPipe serves a handler over a single connection without a network. The handler sees the connection as TLS.
func DialPipe(t *testing.T, protocols *http.Protocols, handler http.Handler) (*http.Server, net.Conn) {
	t.Helper()
	client, far := net.Pipe()
	l := make(pipeListener, 1)
	l <- far
	server := &http.Server{Protocols: protocols, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.TLS = &tls.ConnectionState{ServerName: "localhost"}
		handler.ServeHTTP(w, r)
	})}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = errors.Join(client.Close(), server.Close()) })
	return server, client
}

// CheckSlowBody checks that a server can shut down quickly while a request body arrives one byte at a time.
func CheckSlowBody(t *testing.T, handler http.Handler, method, path string, headers ...string) {
	t.Helper()
	now := time.Now()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(now)) // time in the bubble starts in the past, but the gateway was created outside the bubble
		server, conn := DialPipe(t, nil, handler)
		head := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: localhost:8443\r\nContent-Length: 40000\r\n%s\r\n", method, path, strings.Join(headers, "\r\n"))
		startedAt := time.Now()
		var client sync.WaitGroup
		defer client.Wait()
		client.Go(func() { sendSlowly(conn, head+"\r\n") })
		client.Go(func() { _, _ = io.Copy(io.Discard, conn) })
		time.Sleep(time.Second)
		if err := server.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		if elapsed := time.Since(startedAt); elapsed > 25*time.Second {
			t.Errorf("the server ended after %v", elapsed)
		}
	})
}

// sendSlowly sends the head of a request at once and its body one byte at a time.
func sendSlowly(conn net.Conn, head string) {
	_, err := io.WriteString(conn, head)
	for sent := 0; err == nil && sent < 100; sent++ {
		time.Sleep(2 * time.Second)
		_, err = io.WriteString(conn, "x")
	}
	_ = conn.Close()
}
