package oauth2

import (
	"crypto/rand"
	"encoding/base64"
)

// RandomToken returns 256 random bits in the alphabet that every client
// transports unharmed, even those that do not percent-encode (RFC 6749 §10.10
// asks for 128 bits or more).
func RandomToken() string { return base64.RawURLEncoding.EncodeToString(RandomBytes(32)) }

// RandomBytes returns random bytes.
func RandomBytes(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails: see crypto/rand
	return b
}
