package providertest

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"maps"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/josetest"
)

// Fault replaces the handler of an endpoint. Faults that keep a connection open release it when the client disconnects or the
// test ends. Any http.HandlerFunc is a Fault.
type Fault func(http.ResponseWriter, *http.Request)

// partialResponse is the start of a response that is never completed.
const partialResponse = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{\"access_token\":"

// NeverRespond accepts the request and never responds.
func NeverRespond(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// StallBody starts a response and stops within its body.
func StallBody(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", "1000")
	_, _ = io.WriteString(w, `{"access_token":`)
	_ = http.NewResponseController(w).Flush()
	<-r.Context().Done()
}

// StallHeader starts a response and stops within its header. HTTP/1.1 only.
func StallHeader(w http.ResponseWriter, r *http.Request) {
	hijack(w, func(conn net.Conn) {
		_, _ = io.WriteString(conn, partialResponse[:40])
		_, _ = io.Copy(io.Discard, conn) // returns when the client disconnects
	})
}

// DripBytes sends an endless response, byte by byte.
func DripBytes(w http.ResponseWriter, r *http.Request) {
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

// ResetMidResponse starts a response and resets the TCP connection. HTTP/1.1 only.
func ResetMidResponse(w http.ResponseWriter, _ *http.Request) {
	hijack(w, func(conn net.Conn) {
		_, _ = io.WriteString(conn, partialResponse)
		resetOnClose(conn)
	})
}

// ResetConnection resets the TCP connection before the response. HTTP/1.1 only.
func ResetConnection(w http.ResponseWriter, _ *http.Request) { hijack(w, resetOnClose) }

// CloseConnection closes the connection with a FIN before the response. HTTP/1.1 only.
func CloseConnection(w http.ResponseWriter, _ *http.Request) { hijack(w, func(net.Conn) {}) }

// TruncateBody starts a response and closes the connection with a FIN within its body. HTTP/1.1 only.
func TruncateBody(w http.ResponseWriter, _ *http.Request) {
	hijack(w, func(conn net.Conn) { _, _ = io.WriteString(conn, partialResponse) })
}

// AbortHandler closes the connection. Over HTTP/2, it resets the stream.
func AbortHandler(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

// SendHTML responds with status 200 and an HTML page, like a proxy that intercepts requests.
func SendHTML(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = io.WriteString(w, "<!DOCTYPE html><title>Welcome</title><h1>It works!</h1>")
}

// SendHugeJSON responds with status 200 and 10 MB of JSON.
func SendHugeJSON(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{"access_token":"`)
	for range 10 {
		if _, err := w.Write(bytes.Repeat([]byte("x"), 1<<20)); err != nil {
			return // the client has disconnected
		}
	}
	_, _ = io.WriteString(w, `"}`)
}

// Status returns a Fault that responds with a status and no body.
func Status(status int) Fault {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }
}

// JSON returns a Fault that responds with a status and a body, which is encoded as JSON unless it is a []byte.
func JSON(status int, body any) Fault {
	if raw, ok := body.([]byte); ok {
		body = json.RawMessage(raw)
	}
	return func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, status, body) }
}

// ErrorResponse returns a Fault that responds with an OAuth error (RFC 6749 §5.2).
func ErrorResponse(status int, code string) Fault {
	return JSON(status, map[string]string{"error": code, "error_description": "error requested by the test"})
}

// Redirect returns a Fault that responds with 307. A client that follows it sends the code and the secret to location.
func Redirect(location string) Fault {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", location)
		w.WriteHeader(http.StatusTemporaryRedirect)
	}
}

// hijack calls use with the connection and then closes it.
func hijack(w http.ResponseWriter, use func(net.Conn)) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler) // HTTP/2 connections cannot be hijacked; a reset stream is the closest equivalent
	}
	defer conn.Close()
	use(conn)
}

// resetOnClose makes Close reset the TCP connection.
func resetOnClose(conn net.Conn) {
	if secured, ok := conn.(*tls.Conn); ok {
		conn = secured.NetConn()
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
}

// writeJSON writes a JSON response. It ignores write errors, because the client may have disconnected.
func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

// Values for [Settings].IDToken. Each of them makes ID tokens invalid in one respect.

// UnknownKey signs with a key that is not in the provider's key set.
func UnknownKey(t *IDToken) {
	t.KeyID, t.Key = "unknown", foreignKey()
}

// ForeignKey signs with a key that is not in the provider's key set, but uses the kid of a published key.
func ForeignKey(t *IDToken) { t.Key = foreignKey() }

// AlgorithmNone omits the signature.
func AlgorithmNone(t *IDToken) { t.Algorithm = "none" }

// HS256WithPublicKey signs with the public key as the HMAC secret (RFC 8725 §2.1).
func HS256WithPublicKey(t *IDToken) {
	der, err := x509.MarshalPKIXPublicKey(signingKey().Public())
	if err != nil {
		panic(err) // does not happen with an RSA key
	}
	t.Algorithm, t.Key = jose.HS256, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
}

// HS256WithClientSecret signs with [ClientSecret] (OpenID Connect Core §10.1), padded to the required size.
func HS256WithClientSecret(t *IDToken) {
	t.Algorithm, t.Key = jose.HS256, append([]byte(ClientSecret), make([]byte, 32)...)
}

// WrongNonce replaces the nonce with that of another sign-in.
func WrongNonce(t *IDToken) { t.Claims["nonce"] = "another" }

// WithoutNonce removes the nonce.
func WithoutNonce(t *IDToken) { delete(t.Claims, "nonce") }

// WrongAudience replaces the aud with another client.
func WrongAudience(t *IDToken) { t.Claims["aud"] = "another" }

// WrongIssuer replaces the iss with another issuer.
func WrongIssuer(t *IDToken) { t.Claims["iss"] = "https://login.attacker.example" }

// ExpiredToken sets exp to a time in the past.
func ExpiredToken(t *IDToken) { t.Claims["exp"] = time.Now().Add(-time.Hour).Unix() }

// OtherAuthorizedParty sets another client as azp, and both clients as aud.
func OtherAuthorizedParty(t *IDToken) {
	t.Claims["aud"] = []any{t.Claims["aud"], "another"}
	t.Claims["azp"] = "another"
}

// EmailVerifiedString sets email_verified to the string "true", which is not a boolean.
func EmailVerifiedString(t *IDToken) { t.Claims["email_verified"] = "true" }

// foreignKey returns a key that no provider publishes.
var foreignKey = sync.OnceValue(josetest.NewRSA)

// SignedJSON returns a Fault that responds with status 200 and the claims as a signed JWT, which is permitted for userinfo
// (OpenID Connect Core §5.3.2). change alters the token before it is signed.
func SignedJSON(claims map[string]any, change func(*IDToken)) Fault {
	return func(w http.ResponseWriter, _ *http.Request) {
		token := &IDToken{Algorithm: jose.RS256, KeyID: "key-1", Key: signingKey(), Claims: maps.Clone(claims)}
		change(token)
		w.Header().Set("Content-Type", "application/jwt")
		_, _ = io.WriteString(w, token.sign())
	}
}
