package providertest

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"time"
)

// Fault answers in place of an endpoint. Those that hold a connection let it go
// when the client does, or when the test ends. Any http.HandlerFunc is one.
type Fault func(http.ResponseWriter, *http.Request)

// partial is the beginning of an answer that never ends.
const partial = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{\"access_token\":"

// Silent takes the request and never answers.
func Silent(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// Stall begins an answer, and stops within its body.
func Stall(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", "1000")
	_, _ = io.WriteString(w, `{"access_token":`)
	_ = http.NewResponseController(w).Flush()
	<-r.Context().Done()
}

// StallHeader begins an answer, and stops within its header. Over HTTP/1.1.
func StallHeader(w http.ResponseWriter, r *http.Request) {
	hijack(w, func(conn net.Conn) {
		_, _ = io.WriteString(conn, partial[:40])
		_, _ = io.Copy(io.Discard, conn) // until the client goes
	})
}

// Drip begins an answer, and goes on with it byte by byte, so that something
// always comes and it never ends.
func Drip(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		_, _ = io.WriteString(w, " ")
		_ = http.NewResponseController(w).Flush()
		select {
		case <-tick.C:
		case <-r.Context().Done():
			return
		}
	}
}

// Reset begins an answer and ends the connection with a RST. Over HTTP/1.1.
func Reset(w http.ResponseWriter, _ *http.Request) {
	hijack(w, func(conn net.Conn) {
		_, _ = io.WriteString(conn, partial)
		linger(conn)
	})
}

// ResetAtOnce ends the connection with a RST before it answers. Over HTTP/1.1.
func ResetAtOnce(w http.ResponseWriter, _ *http.Request) { hijack(w, linger) }

// Close ends the connection with a FIN before it answers. Over HTTP/1.1.
func Close(w http.ResponseWriter, _ *http.Request) { hijack(w, func(net.Conn) {}) }

// Truncate begins an answer, and ends the connection with a FIN within its
// body. Over HTTP/1.1.
func Truncate(w http.ResponseWriter, _ *http.Request) {
	hijack(w, func(conn net.Conn) { _, _ = io.WriteString(conn, partial) })
}

// Abort ends the connection, or, over HTTP/2, the stream.
func Abort(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

// HTML answers 200 with a page, as a proxy in between does.
func HTML(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = io.WriteString(w, "<!DOCTYPE html><title>Welcome</title><h1>It works!</h1>")
}

// Huge answers 200 with 10 MB of JSON.
func Huge(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{"access_token":"`)
	for range 10 {
		if _, err := w.Write(bytes.Repeat([]byte("x"), 1<<20)); err != nil {
			return // the client has had enough
		}
	}
	_, _ = io.WriteString(w, `"}`)
}

// Status answers with a status and no body.
func Status(status int) Fault {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }
}

// JSON answers with a status and a body: bytes as they are, anything else as
// JSON.
func JSON(status int, body any) Fault {
	if raw, ok := body.([]byte); ok {
		body = json.RawMessage(raw)
	}
	return func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, status, body) }
}

// ErrorResponse answers as RFC 6749 §5.2 has it.
func ErrorResponse(status int, code string) Fault {
	return JSON(status, map[string]string{"error": code, "error_description": "as the test wants it"})
}

// Redirect answers 307, which keeps the method and the body: whoever follows
// sends the code and the secret there.
func Redirect(location string) Fault {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", location)
		w.WriteHeader(http.StatusTemporaryRedirect)
	}
}

// hijack gives the connection to use, and closes it.
func hijack(w http.ResponseWriter, use func(net.Conn)) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler) // HTTP/2: the nearest thing
	}
	defer conn.Close()
	use(conn)
}

// linger makes the close of a connection a RST.
func linger(conn net.Conn) {
	if secured, ok := conn.(*tls.Conn); ok {
		conn = secured.NetConn()
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
}

// writeJSON answers with JSON. The client may be gone; then there is nobody to
// tell.
func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}
