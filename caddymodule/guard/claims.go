package guard

import (
	"fmt"
	"time"

	"github.com/go-jose/go-jose/v4/json"
	"github.com/go-jose/go-jose/v4/jwt"
)

// claims are the claims of an access token (RFC 9068 §2.2, SMART App Launch).
type claims struct {
	jwt.Claims

	ClientID string `json:"client_id"`
	Scope    string `json:"scope"`
	Patient  string `json:"patient"`
	FHIRUser string `json:"fhirUser"`
}

// checkClaims checks what the claims of a token with a good signature say:
// all that RFC 9068 §2.2 requires is there, the token is from our issuer and
// for us, and this is its time.
func (v *Verifier) checkClaims(payload []byte) (Token, error) {
	var c claims
	if err := json.Unmarshal(payload, &c); err != nil {
		return Token{}, fmt.Errorf("%w: claims: %w", ErrMalformed, err)
	}
	if missing := c.missing(); missing != "" {
		return Token{}, fmt.Errorf("%w: %s", ErrMissingClaim, missing)
	}
	if c.Issuer != v.Issuer {
		return Token{}, ErrIssuer
	}
	if !c.Audience.Contains(v.Audience) {
		return Token{}, ErrAudience
	}
	if err := c.checkTimes(v.now(), v.leeway()); err != nil {
		return Token{}, err
	}
	return Token{
		Issuer:   c.Issuer,
		Subject:  c.Subject,
		ClientID: c.ClientID,
		ID:       c.ID,
		Scope:    c.Scope,
		Patient:  c.Patient,
		FHIRUser: c.FHIRUser,
		IssuedAt: c.IssuedAt.Time(),
		Expires:  c.Expiry.Time(),
	}, nil
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

// checkTimes checks exp, nbf and iat (RFC 7519 §4.1). A token expires at exp,
// not after it. One that was issued in the future, or after its end, comes
// from an issuer whose clock cannot be trusted with the end either.
func (c *claims) checkTimes(now time.Time, leeway time.Duration) error {
	switch {
	case !now.Before(c.Expiry.Time().Add(leeway)):
		return ErrExpired
	case c.NotBefore != nil && now.Add(leeway).Before(c.NotBefore.Time()):
		return ErrNotYetValid
	case now.Add(leeway).Before(c.IssuedAt.Time()), c.Expiry.Time().Before(c.IssuedAt.Time()):
		return ErrIssuedAt
	}
	return nil
}
