package store

import (
	"crypto/sha256"
	"encoding/base64"
)

// Key names an entry without holding the secret that leads to it.
func Key(kind, secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return kind + ":" + base64.RawURLEncoding.EncodeToString(sum[:])
}
