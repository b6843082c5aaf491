// Package namecheck checks the names of users and clients, and claims of access tokens that become HTTP header fields. The
// authorization server, the guard and the OpenID Connect client share these checks, so a name that one of them accepts reaches
// the FHIR server unchanged.
package namecheck

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
)

// MaxLength is the maximum length of a name in ASCII characters (OpenID Connect Core §2).
const MaxLength = 255

// SelfRegisteredPrefix is the prefix of the client_id of each self-registered client (RFC 7591).
const SelfRegisteredPrefix = "registered-"

// Check returns an error if a name cannot be a sub or a client_id. Names must have 1 to [MaxLength] printable ASCII characters
// and satisfy [CheckHeaderValue]. The text of the error continues a sentence that begins with the name.
func Check(name string) error {
	switch {
	case name == "":
		return errors.New("is empty")
	case len(name) > MaxLength:
		return fmt.Errorf("has %d bytes: the maximum is %d (OpenID Connect Core §2)", len(name), MaxLength)
	}
	return CheckHeaderValue(name)
}

// CheckHeaderValue returns an error if a text could be altered in an HTTP header field (RFC 9110 §5.5): recipients trim spaces
// at both ends, reject control characters, and decode non-ASCII characters differently. The text of the error continues a
// sentence that begins with the name of the value.
func CheckHeaderValue(text string) error {
	if strings.HasPrefix(text, " ") || strings.HasSuffix(text, " ") {
		return errors.New("begins or ends with a space, which HTTP header fields do not preserve")
	}
	for _, r := range text {
		if r < ' ' || r > '~' {
			return fmt.Errorf("contains %U: only printable ASCII characters are allowed", r)
		}
	}
	return nil
}

// CheckConfigured returns an error if a user or client in the configuration or the store cannot have a name, because [Check]
// fails or because the authorization server may assign the name to another person or client.
func CheckConfigured(name string) error {
	switch err := Check(name); {
	case err != nil:
		return err
	case strings.HasPrefix(name, SelfRegisteredPrefix):
		return fmt.Errorf("begins with %s, which is reserved for self-registered clients", SelfRegisteredPrefix)
	case IsDerivedSub(name):
		return errors.New("has the form of a generated sub for a person of an identity provider (43 base64url characters)")
	}
	return nil
}

// IsDerivedSub reports whether a name has the format of a sub that is derived from an identity provider's issuer and sub: a
// SHA-256 digest in base64url.
func IsDerivedSub(name string) bool {
	sum, err := base64.RawURLEncoding.DecodeString(name)
	return err == nil && len(sum) == 32
}
