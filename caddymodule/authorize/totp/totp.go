package totp

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha1" //nolint:gosec // RFC 6238's default, and the only one that all apps have
	"crypto/subtle"
	"encoding/base32"
	"encoding/binary"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"
)

// What RFC 6238 leaves open is as all authenticator apps have it: SHA-1, six
// digits, a new code each 30 seconds.
const (
	// Step is for how long a code is shown.
	Step   = 30 * time.Second
	digits = 6
	modulo = 1_000_000

	// Skew is how many steps the clock of a telephone may be off, either way
	// (RFC 6238 §5.2).
	Skew = 1

	// minSecret is the least length of a key, in bytes (RFC 4226 §4, R6).
	minSecret = 16
)

var encoding = base32.StdEncoding.WithPadding(base32.NoPadding)

// CheckSecret says why a text is no key for an authenticator app, if it is
// not: base32 of at least 16 bytes. It does not repeat the text.
func CheckSecret(secret string) error {
	key, err := DecodeSecret(secret)
	if err != nil {
		return errors.New("totp_secret is not base32: the letters A to Z and the digits 2 to 7")
	}
	if len(key) < minSecret {
		return fmt.Errorf("totp_secret has %d bytes, and needs %d", len(key), minSecret)
	}
	return nil
}

// NewSecret makes a key for an authenticator app, of the length that
// RFC 4226 §4 recommends.
func NewSecret() string {
	key := make([]byte, 20)
	_, _ = rand.Read(key) // never fails: see crypto/rand
	return encoding.EncodeToString(key)
}

// URI is what an authenticator app reads, from a QR code as a rule, to
// learn a key: an otpauth URI, with the names it shows the code under.
func URI(issuerName, user, secret string) string {
	label := issuerName + ":" + user
	u := url.URL{Scheme: "otpauth", Host: "totp", Path: "/" + label}
	// As %20: many apps show a + as it is.
	u.RawQuery = strings.ReplaceAll(url.Values{"secret": {secret}, "issuer": {issuerName}}.Encode(), "+", "%20")
	return u.String()
}

// DecodeSecret takes a key as people write it down: in either case, in
// groups, with or without padding.
func DecodeSecret(secret string) ([]byte, error) {
	secret = strings.ToUpper(strings.NewReplacer(" ", "", "-", "", "=", "").Replace(secret))
	return encoding.DecodeString(secret)
}

// Code is the code of a time step (RFC 4226 §5.3).
func Code(key []byte, step int64) string {
	mac := hmac.New(sha1.New, key)
	mac.Write(binary.BigEndian.AppendUint64(nil, uint64(step)))
	sum := mac.Sum(nil)
	offset := sum[len(sum)-1] & 0xf
	number := binary.BigEndian.Uint32(sum[offset:]) & 0x7fffffff
	return fmt.Sprintf("%0*d", digits, number%modulo)
}

// MatchingStep finds the time step, now or next to it, whose code this is.
func MatchingStep(key []byte, code string, now time.Time) (step int64, ok bool) {
	current := now.Unix() / int64(Step/time.Second)
	for s := current - Skew; s <= current+Skew; s++ {
		if subtle.ConstantTimeCompare([]byte(Code(key, s)), []byte(code)) == 1 {
			step, ok = s, true
		}
	}
	return step, ok
}
