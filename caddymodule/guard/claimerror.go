package guard

import (
	"fmt"
	"strings"
)

// ClaimError says which claim of a token is at fault. The client learns the claim alone; what was found and expected is
// for the log.
type ClaimError struct {
	// Claim is its name: iss, aud, typ, one that is missing, or one that no HTTP header field would carry unchanged.
	Claim string
	// Issuer is the iss of the token. Of a token by an unknown issuer it is not verified.
	Issuer string
	// Found is its value, at most 200 bytes; empty if it is missing.
	Found string
	// Expected is what it should have been.
	Expected string
	// Err is the cause.
	Err error
}

// Error implements error.
func (e *ClaimError) Error() string {
	return fmt.Sprintf("%v: %s of a token by %q is %q, expected %s", e.Err, e.Claim, e.Issuer, e.Found, e.Expected)
}

// Unwrap returns the cause.
func (e *ClaimError) Unwrap() error { return e.Err }

// maxFound bounds what is shown of a claim, in bytes.
const maxFound = 200

func newClaimError(claim, issuer, found, expected string, cause error) *ClaimError {
	return &ClaimError{claim, found200(issuer), found200(found), expected, cause}
}

func found200(text string) string { return strings.ToValidUTF8(text[:min(len(text), maxFound)], "") }
