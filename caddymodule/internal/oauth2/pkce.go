package oauth2

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"regexp"
)

// ValidChallenge reports whether a text has the form of an S256 code_challenge
// (RFC 7636 §4.2).
func ValidChallenge(challenge string) bool {
	b, err := base64.RawURLEncoding.DecodeString(challenge)
	return err == nil && len(b) == sha256.Size
}

// CheckVerifier compares a code_verifier with the code_challenge (RFC 7636 §4.6). If there
// is a verifier but no challenge, an attacker has removed it (RFC 9700 §4.8.2).
func CheckVerifier(challenge, verifier string) error {
	switch {
	case challenge == "" && verifier == "":
		return nil
	case challenge == "":
		return InvalidGrant("the authorization request had no code_challenge")
	case !verifierForm.MatchString(verifier):
		return InvalidGrant("code_verifier must be 43 to 128 unreserved characters")
	}
	sum := sha256.Sum256([]byte(verifier))
	want := base64.RawURLEncoding.EncodeToString(sum[:])
	if subtle.ConstantTimeCompare([]byte(want), []byte(challenge)) != 1 {
		return InvalidGrant("code_verifier does not match the code_challenge")
	}
	return nil
}

// verifierForm is that of RFC 7636 §4.1.
var verifierForm = regexp.MustCompile(`^[A-Za-z0-9._~-]{43,128}$`)
