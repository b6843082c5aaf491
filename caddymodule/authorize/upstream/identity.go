package upstream

import (
	"errors"
	"log/slog"
	"time"
)

// Identity is who signed in. Only Issuer and Subject together identify the person
// (OpenID Connect Core §5.7).
type Identity struct {
	Issuer  string // as configured
	Subject string // the sub: up to 255 characters, unique at the issuer

	// Claims are those of the ID token, and of userinfo where the ID token has none.
	// They have the types that were sent, with numbers as json.Number: an
	// email_verified of "true" stays a string, and is not true.
	Claims map[string]any

	IDToken  string    // verified: the hint for [Provider.EndSessionURL]
	AuthTime time.Time // the auth_time, or zero
	Tokens   Tokens    // for the provider's own APIs
}

// Tokens are those that the provider issued beside the ID token. They must not be shown
// to anybody, so they neither print nor marshal.
type Tokens struct {
	AccessToken  string    // for the provider's own APIs
	RefreshToken string    // often empty
	Expiry       time.Time // of the access token; zero if the provider does not say
}

const redacted = "[upstream tokens]"

// String hides the tokens.
func (Tokens) String() string { return redacted }

// GoString hides the tokens.
func (Tokens) GoString() string { return redacted }

// LogValue hides the tokens.
func (Tokens) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalJSON fails: whoever must keep the tokens does so field by field.
func (Tokens) MarshalJSON() ([]byte, error) {
	return nil, errors.New("upstream tokens are not to be marshalled")
}
