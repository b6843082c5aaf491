package oauth2

import (
	"crypto/rand"
	"encoding/base64"
)

// RandomToken returns 256 random bits (RFC 6749 §10.10 asks for 128) in base64url, which
// survives clients that do not percent-encode. It does not begin with "-": commands would read
// an id such as that of a key as a flag.
func RandomToken() string {
	for {
		if token := base64.RawURLEncoding.EncodeToString(RandomBytes(32)); token[0] != '-' {
			return token
		}
	}
}

// RandomBytes returns n random bytes.
func RandomBytes(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails: see crypto/rand
	return b
}
