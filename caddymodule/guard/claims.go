package guard

import (
	"time"

	"github.com/go-jose/go-jose/v4/jwt"
)

// claims are the claims of our access tokens (RFC 9068 §2.2, SMART App Launch).
type claims struct {
	jwt.Claims

	ClientID string `json:"client_id"`
	Scope    string `json:"scope"`
	Patient  string `json:"patient"`
	FHIRUser string `json:"fhirUser"`

	// By these our own server tells whether the token has ended.
	Session        string `json:"sid"`
	CredentialHash string `json:"credential_hash"`

	Provider        string `json:"idp"`
	ProviderAccount string `json:"idp_account"`

	Related bool `json:"related"`

	ACR      string           `json:"acr"`
	AuthTime *jwt.NumericDate `json:"auth_time"`
}

// missing is the name of the first required claim that is missing or empty.
func (c *claims) missing() string {
	for _, claim := range []struct {
		name string
		here bool
	}{
		{"iss", c.Issuer != ""},
		{"aud", len(c.Audience) > 0},
		{"exp", c.Expiry != nil},
		{"iat", c.IssuedAt != nil},
		{"sub", c.Subject != ""},
		{"client_id", c.ClientID != ""},
		{"jti", c.ID != ""},
	} {
		if !claim.here {
			return claim.name
		}
	}
	return ""
}

// checkTimes checks exp, nbf and iat (RFC 7519 §4.1), as far as present. A token that was issued in the future, or
// after it expired, comes from an issuer whose clock cannot be trusted with the expiry either.
func checkTimes(c *jwt.Claims, now time.Time, leeway time.Duration) error {
	expires, issued := c.Expiry.Time(), c.IssuedAt.Time()
	switch {
	case c.Expiry != nil && !now.Before(expires.Add(leeway)):
		return ErrExpired
	case c.NotBefore != nil && now.Add(leeway).Before(c.NotBefore.Time()):
		return errNotYetValid
	case c.IssuedAt != nil && now.Add(leeway).Before(issued):
		return errIssuedAt
	case c.IssuedAt != nil && c.Expiry != nil && expires.Before(issued):
		return errIssuedAt
	}
	return nil
}
