package guard

import (
	"context"
	"fmt"
	"time"

	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/strictjson"
)

// defaultLeeway is the default tolerance for other clocks.
const defaultLeeway = 30 * time.Second

// Verifier verifies the access tokens of our own authorization server for one audience, strictly by RFC 9068. For
// those of others there is [Trusted]. It is safe for concurrent use, and must not be changed once in use.
type Verifier struct {
	// Issuer is what iss must be exactly. Required: without it no token passes.
	Issuer string
	// Audience is what aud must contain: the FHIR base URL. Required: without it no token passes.
	Audience string
	// Keys are the issuer's keys. Required.
	Keys KeySet
	// Revoked reports whether the token with this jti was revoked. It is called for each verification, also of
	// remembered tokens; its error refuses the token with 503. Nil if tokens are not revoked.
	Revoked func(ctx context.Context, jti string) (bool, error)
	// Memory remembers verified tokens. It may be shared by verifiers. Nil remembers none.
	Memory *Memory
	// Now is the clock. Default: time.Now.
	Now func() time.Time
	// Leeway is the tolerance for the issuer's clock in exp, nbf and iat (RFC 7519 §4.1.4: "usually no more than a few
	// minutes"). Default: 30 s; negative: none.
	Leeway time.Duration
}

func (v *Verifier) policy() *policy {
	return (&policy{
		name: "own", issuer: v.Issuer, audience: v.Audience, leeway: leewayOr(v.Leeway),
		now: v.now, keys: v.Keys, revoked: v.Revoked, memory: v.Memory,
		header: ownHeader, fit: ownKey, claims: v.checkClaims,
	}).identified()
}

func (v *Verifier) now() time.Time { return clock(v.Now) }

func clock(now func() time.Time) time.Time {
	if now == nil {
		return time.Now()
	}
	return now()
}

// leewayOr is the leeway in effect for a setting.
func leewayOr(leeway time.Duration) time.Duration {
	if leeway == 0 {
		return defaultLeeway
	}
	return max(leeway, 0)
}

// checkClaims checks the claims of a token whose signature is valid: everything required by RFC 9068 §2.2 is present,
// the issuer and the audience are ours, and the token is valid now.
func (v *Verifier) checkClaims(_ joseHeader, payload []byte) (Token, error) {
	var c claims
	if err := strictjson.Unmarshal(payload, &c); err != nil {
		return Token{}, fmt.Errorf("%w: claims: %w", errMalformed, err)
	}
	if missing := c.missing(); missing != "" {
		return Token{}, fmt.Errorf("%w: %s", errMissingClaim, missing)
	}
	if c.Issuer != v.Issuer {
		return Token{}, errIssuer
	}
	if !c.Audience.Contains(v.Audience) {
		return Token{}, errAudience
	}
	if err := checkTimes(&c.Claims, v.now(), leewayOr(v.Leeway)); err != nil {
		return Token{}, err
	}
	return Token{
		Issuer: c.Issuer, Subject: c.Subject, ClientID: c.ClientID, ID: c.ID, Scope: c.Scope, Patient: c.Patient, FHIRUser: c.FHIRUser,
		Session: c.Session, CredentialHash: c.CredentialHash, Provider: c.Provider, ProviderAccount: c.ProviderAccount, Related: c.Related,
		ACR: c.ACR, AuthTime: c.AuthTime.Time(),
		IssuedAt: c.IssuedAt.Time(), Expires: c.Expiry.Time(),
	}, nil
}

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
