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

// What follows are values for [Settings.IDToken]. Each makes an ID token wrong
// in one way, and leaves it right otherwise.

// UnknownKey signs with a key that is not in the key set.
func UnknownKey(t *IDToken) {
	t.KeyID, t.Key = "unknown", foreignKey()
}

// ForeignKey signs with a key that is not in the key set, under the kid of one
// that is.
func ForeignKey(t *IDToken) { t.Key = foreignKey() }

// AlgorithmNone does not sign.
func AlgorithmNone(t *IDToken) { t.Algorithm = "none" }

// HS256WithPublicKey signs with what everybody has: the public key, as the
// secret (RFC 8725 §2.1).
func HS256WithPublicKey(t *IDToken) {
	der, err := x509.MarshalPKIXPublicKey(signingKey().Public())
	if err != nil {
		panic(err) // an RSA key always marshals
	}
	t.Algorithm, t.Key = jose.HS256, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
}

// HS256WithClientSecret signs with [ClientSecret], as OpenID Connect Core §10.1
// would allow, made up to the size that the algorithm needs.
func HS256WithClientSecret(t *IDToken) {
	t.Algorithm, t.Key = jose.HS256, append([]byte(ClientSecret), make([]byte, 32)...)
}

// WrongNonce has the nonce of another sign-in.
func WrongNonce(t *IDToken) { t.Claims["nonce"] = "another" }

// WithoutNonce has no nonce.
func WithoutNonce(t *IDToken) { delete(t.Claims, "nonce") }

// WrongAudience is for another client.
func WrongAudience(t *IDToken) { t.Claims["aud"] = "another" }

// WrongIssuer is of another provider.
func WrongIssuer(t *IDToken) { t.Claims["iss"] = "https://login.attacker.example" }

// Expired has been valid once.
func Expired(t *IDToken) { t.Claims["exp"] = time.Now().Add(-time.Hour).Unix() }

// OtherAuthorizedParty was issued to another client, with us in aud too.
func OtherAuthorizedParty(t *IDToken) {
	t.Claims["aud"] = []any{t.Claims["aud"], "another"}
	t.Claims["azp"] = "another"
}

// EmailVerifiedString has an email_verified of "true", which is no true.
func EmailVerifiedString(t *IDToken) { t.Claims["email_verified"] = "true" }

// foreignKey is a key of nobody.
var foreignKey = sync.OnceValue(josetest.NewRSA)

// SignedJSON answers 200 with claims as a signed JWT, as a userinfo endpoint
// may (OpenID Connect Core §5.3.2); change makes it wrong before it is signed.
func SignedJSON(claims map[string]any, change func(*IDToken)) Fault {
	return func(w http.ResponseWriter, _ *http.Request) {
		token := &IDToken{Algorithm: jose.RS256, KeyID: "key-1", Key: signingKey(), Claims: maps.Clone(claims)}
		change(token)
		w.Header().Set("Content-Type", "application/jwt")
		_, _ = io.WriteString(w, token.sign())
	}
}
