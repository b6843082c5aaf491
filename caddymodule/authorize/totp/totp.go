package totp

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha1" //nolint:gosec // RFC 6238's default, and the only one that all apps support
	"crypto/subtle"
	"encoding/base32"
	"encoding/binary"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"
)

// The parameters of RFC 6238 that all authenticator apps support.
const (
	// Step is the lifetime of a code.
	Step   = 30 * time.Second
	digits = 6
	modulo = 1_000_000

	// Skew is how many steps a telephone's clock may be off, either way (RFC 6238 §5.2).
	Skew = 1

	// minSecret is the least length of a key in bytes (RFC 4226 §4, R6).
	minSecret = 16
)

var encoding = base32.StdEncoding.WithPadding(base32.NoPadding)

// CheckSecret refuses a text that is not a key of at least 16 bytes in base32. Its
// error does not quote the text.
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

// NewSecret makes a key of the length that RFC 4226 §4 recommends.
func NewSecret() string {
	key := make([]byte, 20)
	_, _ = rand.Read(key) // never fails: see crypto/rand
	return encoding.EncodeToString(key)
}

// URI returns the otpauth URI by which an authenticator app learns a key, usually
// from a QR code, with the names that the app shows.
func URI(issuerName, user, secret string) string {
	label := issuerName + ":" + user
	u := url.URL{Scheme: "otpauth", Host: "totp", Path: "/" + label}
	// Many apps show a + as it is.
	u.RawQuery = strings.ReplaceAll(url.Values{"secret": {secret}, "issuer": {issuerName}}.Encode(), "+", "%20")
	return u.String()
}

// DecodeSecret decodes a key as people write it: in either case, grouped, with or
// without padding.
func DecodeSecret(secret string) ([]byte, error) {
	secret = strings.ToUpper(strings.NewReplacer(" ", "", "-", "", "=", "").Replace(secret))
	return encoding.DecodeString(secret)
}

// Code returns the code of a time step (RFC 4226 §5.3).
func Code(key []byte, step int64) string {
	mac := hmac.New(sha1.New, key)
	mac.Write(binary.BigEndian.AppendUint64(nil, uint64(step)))
	sum := mac.Sum(nil)
	offset := sum[len(sum)-1] & 0xf
	number := binary.BigEndian.Uint32(sum[offset:]) & 0x7fffffff
	return fmt.Sprintf("%0*d", digits, number%modulo)
}

// MatchingStep returns the time step, within [Skew], whose code this is.
func MatchingStep(key []byte, code string, now time.Time) (step int64, ok bool) {
	current := now.Unix() / int64(Step/time.Second)
	for s := current - Skew; s <= current+Skew; s++ {
		if subtle.ConstantTimeCompare([]byte(Code(key, s)), []byte(code)) == 1 {
			step, ok = s, true
		}
	}
	return step, ok
}
