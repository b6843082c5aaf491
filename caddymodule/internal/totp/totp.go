// Package totp generates and verifies the codes of authenticator apps (RFC 6238). Callers must accept each code only once.
package totp

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha1" // SHA-1 is the only hash in RFC 6238 that all apps support
	"crypto/subtle"
	"encoding/base32"
	"encoding/binary"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"
)

// Parameters of RFC 6238 that all authenticator apps support.
const (
	Step      = 30 * time.Second // lifetime of a code
	Skew      = 1                // accepted clock skew in steps, in both directions (RFC 6238 §5.2)
	digits    = 6
	modulo    = 1_000_000
	minSecret = 16 // in bytes (RFC 4226 §4, R6)
)

var encoding = base32.StdEncoding.WithPadding(base32.NoPadding)

// CheckSecret returns an error unless the secret is the base32 of at least 16 bytes. The error does not contain the secret.
func CheckSecret(secret string) error {
	key, err := DecodeSecret(secret)
	if err != nil {
		return errors.New("totp_secret is not valid base32: use only the letters A to Z and the digits 2 to 7")
	}
	if len(key) < minSecret {
		return fmt.Errorf("totp_secret has %d bytes; it must have at least %d", len(key), minSecret)
	}
	return nil
}

// NewSecret returns a new random secret of the length that RFC 4226 §4 recommends.
func NewSecret() string {
	key := make([]byte, 20)
	_, _ = rand.Read(key) // never fails; see crypto/rand
	return encoding.EncodeToString(key)
}

// URI returns the otpauth URI for a secret, usually shown as a QR code. Authenticator apps display issuerName and user.
func URI(issuerName, user, secret string) string {
	label := issuerName + ":" + user
	u := url.URL{Scheme: "otpauth", Host: "totp", Path: "/" + label}
	// Many apps display a + literally.
	u.RawQuery = strings.ReplaceAll(url.Values{"secret": {secret}, "issuer": {issuerName}}.Encode(), "+", "%20")
	return u.String()
}

// DecodeSecret decodes a secret. Case, spaces, hyphens and padding are ignored.
func DecodeSecret(secret string) ([]byte, error) {
	secret = strings.ToUpper(strings.NewReplacer(" ", "", "-", "", "=", "").Replace(secret))
	return encoding.DecodeString(secret)
}

// Code returns the code for a time step (RFC 4226 §5.3).
func Code(key []byte, step int64) string {
	mac := hmac.New(sha1.New, key)
	mac.Write(binary.BigEndian.AppendUint64(nil, uint64(step)))
	sum := mac.Sum(nil)
	offset := sum[len(sum)-1] & 0xf
	number := binary.BigEndian.Uint32(sum[offset:]) & 0x7fffffff
	return fmt.Sprintf("%0*d", digits, number%modulo)
}

// MatchingStep returns the time step within [Skew] for which the code is valid.
func MatchingStep(key []byte, code string, now time.Time) (step int64, ok bool) {
	current := now.Unix() / int64(Step/time.Second)
	for s := current - Skew; s <= current+Skew; s++ {
		if subtle.ConstantTimeCompare([]byte(Code(key, s)), []byte(code)) == 1 {
			step, ok = s, true
		}
	}
	return step, ok
}
