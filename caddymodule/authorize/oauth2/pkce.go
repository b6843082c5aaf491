package oauth2

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"strings"
)

// ValidChallenge reports whether a text has the form of an S256 code_challenge
// (RFC 7636 §4.2).
func ValidChallenge(challenge string) bool {
	b, err := base64.RawURLEncoding.DecodeString(challenge)
	return err == nil && len(b) == sha256.Size
}

// CheckVerifier compares a code_verifier with the code_challenge (RFC 7636 §4.6). A
// verifier without a challenge means that an attacker removed the challenge
// (RFC 9700 §4.8.2).
func CheckVerifier(challenge, verifier string) error {
	switch {
	case challenge == "" && verifier == "":
		return nil
	case challenge == "":
		return InvalidGrant("the authorization request had no code_challenge")
	case !validVerifier(verifier):
		return InvalidGrant("code_verifier must be 43 to 128 unreserved characters")
	}
	sum := sha256.Sum256([]byte(verifier))
	want := base64.RawURLEncoding.EncodeToString(sum[:])
	if subtle.ConstantTimeCompare([]byte(want), []byte(challenge)) != 1 {
		return InvalidGrant("code_verifier does not match the code_challenge")
	}
	return nil
}

// validVerifier checks the form of RFC 7636 §4.1.
func validVerifier(verifier string) bool {
	return len(verifier) >= 43 && len(verifier) <= 128 && !strings.ContainsFunc(verifier, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-._~", r))
	})
}
