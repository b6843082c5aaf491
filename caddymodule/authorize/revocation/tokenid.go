package revocation

import (
	"encoding/base64"
	"encoding/binary"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
)

// IDSize is the size of a random id, in bytes.
const IDSize = 16

// NewTokenID makes the jti of an access token of a family. It begins with the
// family's id, so that one entry revokes all that a grant gave, those tokens
// included that are being made at that very moment, and nobody needs to keep a
// list of them.
//
// The rest of it begins with the nanosecond: iat tells seconds, and a token of the second
// in which everything was ended may be from before that or after.
func NewTokenID(family string, at time.Time) string { return family + "." + NewDatedID(at) }

// NewDatedID is a random id that begins with a time.
func NewDatedID(at time.Time) string {
	dated := binary.BigEndian.AppendUint64(nil, uint64(at.UnixNano()))
	return base64.RawURLEncoding.EncodeToString(append(dated, oauth2.RandomBytes(IDSize)...))
}

// IssuedAt is when the access token with a jti was issued; the zero time where the jti
// is of a version that did not tell.
func IssuedAt(tokenID string) time.Time {
	dated, err := base64.RawURLEncoding.DecodeString(tokenID[strings.LastIndexByte(tokenID, '.')+1:])
	if err != nil || len(dated) != 8+IDSize {
		return time.Time{}
	}
	return time.Unix(0, int64(binary.BigEndian.Uint64(dated)))
}

// RandomID returns 128 random bits in base64url.
func RandomID() string { return base64.RawURLEncoding.EncodeToString(oauth2.RandomBytes(IDSize)) }
