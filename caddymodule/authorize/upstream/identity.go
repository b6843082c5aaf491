package upstream

import (
	"errors"
	"log/slog"
	"time"
)

// Identity is who signed in at the provider. Issuer and Subject together are
// the person; nothing else of it is (OpenID Connect Core §5.7).
type Identity struct {
	// Issuer is the provider's, as it is configured.
	Issuer string

	// Subject is the sub claim: up to 255 characters, unique at the issuer.
	Subject string

	// Claims are those of the ID token, completed by userinfo's where it does
	// not have them. Their types are as sent, with numbers as json.Number: an
	// email_verified of "true" stays a string, and is no true.
	Claims map[string]any

	// IDToken is the ID token itself, verified: the hint for
	// [Provider.EndSessionURL].
	IDToken string

	// AuthTime is the auth_time claim. Zero where there is none.
	AuthTime time.Time

	// Tokens are the provider's tokens for its own APIs.
	Tokens Tokens
}

// Tokens are what the provider gave us beside the ID token. They are never to
// be shown: not to the browser, not by userinfo, not in a log. So they do not
// print, and do not marshal.
type Tokens struct {
	// AccessToken is for the provider's own APIs.
	AccessToken string
	// RefreshToken is for new access tokens. Often empty.
	RefreshToken string
	// Expiry is when the access token ends. Zero where the provider does not
	// say.
	Expiry time.Time
}

const redacted = "[upstream tokens]"

// String hides the tokens.
func (Tokens) String() string { return redacted }

// GoString hides the tokens.
func (Tokens) GoString() string { return redacted }

// LogValue hides the tokens.
func (Tokens) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalJSON refuses: who must keep the tokens does so field by field.
func (Tokens) MarshalJSON() ([]byte, error) {
	return nil, errors.New("upstream tokens are not to be marshalled")
}
