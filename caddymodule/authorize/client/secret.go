package client

import (
	"crypto/sha256"
	"crypto/subtle"
	"math"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	minEntropy    = 128 // bits that cannot be guessed (RFC 6749 §10.10)
	minCharacters = 8   // different ones, which random text of that length has
)

// SecretCommand makes a secret of 256 bits.
const SecretCommand = "openssl rand -hex 32"

// IsGuessable reports whether a secret has too little entropy. It takes every text for
// random: it detects short secrets, not sentences.
func IsGuessable(secret string) bool {
	secret = separators.Replace(secret)
	seen := map[rune]bool{}
	for _, c := range secret {
		seen[c] = true
	}
	return len(seen) < minCharacters || float64(utf8.RuneCountInString(secret))*math.Log2(alphabet(secret)) < minEntropy
}

// separators stand between groups of random characters, as in a UUID.
var separators = strings.NewReplacer("-", "", "_", "", ".", "", " ", "")

// alphabet returns how many characters a secret seems to be drawn from.
func alphabet(secret string) (size float64) {
	letters := 26.0
	if !strings.ContainsFunc(secret, func(c rune) bool { return !strings.ContainsRune("0123456789abcdefABCDEF", c) }) {
		letters = 6 // of hexadecimal numbers
	}
	for _, kind := range []struct {
		has  func(rune) bool
		size float64
	}{{unicode.IsDigit, 10}, {unicode.IsLower, letters}, {unicode.IsUpper, letters}, {unicode.IsPunct, 20}, {unicode.IsSymbol, 8}} {
		if strings.ContainsFunc(secret, kind.has) {
			size += kind.size
		}
	}
	return size
}

// Digest returns the SHA-256 of a random secret. Random secrets need neither a salt nor a slow hash.
func Digest(secret string) []byte {
	sum := sha256.Sum256([]byte(secret))
	return sum[:]
}

// SameDigest compares a secret with a digest in constant time.
func SameDigest(digest []byte, secret string) bool {
	return subtle.ConstantTimeCompare(digest, Digest(secret)) == 1
}
