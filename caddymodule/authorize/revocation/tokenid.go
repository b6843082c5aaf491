package revocation

import (
	"encoding/base64"
	"encoding/binary"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// IDSize is the size of a random id in bytes.
const IDSize = 16

// NewTokenID makes the jti of an access token. It begins with the family's id, so that one
// entry revokes all tokens of a grant, even those being made. The time in nanoseconds
// follows: the seconds of iat could not be compared with a cutoff.
func NewTokenID(family string, at time.Time) string { return family + "." + NewDatedID(at) }

// NewDatedID returns a random id that begins with a time.
func NewDatedID(at time.Time) string {
	dated := binary.BigEndian.AppendUint64(nil, uint64(at.UnixNano()))
	return base64.RawURLEncoding.EncodeToString(append(dated, oauth2.RandomBytes(IDSize)...))
}

// IssuedAt returns the time of a jti, or the zero time if it is malformed.
func IssuedAt(tokenID string) time.Time {
	dated, err := base64.RawURLEncoding.DecodeString(tokenID[strings.LastIndexByte(tokenID, '.')+1:])
	if err != nil || len(dated) != 8+IDSize {
		return time.Time{}
	}
	return time.Unix(0, int64(binary.BigEndian.Uint64(dated)))
}

// RandomID returns 128 random bits in base64url.
func RandomID() string { return base64.RawURLEncoding.EncodeToString(oauth2.RandomBytes(IDSize)) }
