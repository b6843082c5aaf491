package client

import (
	"math"
	"strings"
	"unicode"
	"unicode/utf8"
)

// minEntropy is from how many bits on nobody guesses a secret (RFC 6749 §10.10).
const minEntropy = 128

// secretCommand makes a secret of twice that.
const secretCommand = "openssl rand -hex 32"

// minCharacters is how many different characters random text of so many bits has at
// least: what has fewer repeats itself.
const minCharacters = 8

// IsGuessable reports whether a secret has less entropy than it should. It takes what
// it sees for random, so it finds what is too short, and not what is a sentence.
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

// alphabet is how many characters there are of the kinds in a secret.
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
