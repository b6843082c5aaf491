package client

import (
	"context"
	"encoding/base64"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/relyingparty"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/strictjson"
)

// assertionType is the client_assertion_type of RFC 7523 §2.2.
const assertionType = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"

// AssertionAlgorithms are those that clients may authenticate with: the two that SMART App
// Launch 2.2 requires, and common others.
var AssertionAlgorithms = []jose.SignatureAlgorithm{jose.RS384, jose.ES384, jose.RS256, jose.ES256, jose.PS256, jose.EdDSA}

const (
	maxAssertionLifetime = 5 * time.Minute  // SMART App Launch 2.2, Asymmetric Authentication
	assertionLeeway      = 30 * time.Second // for clients' clocks
)

// assertionHeader leaves out keys, which an attacker could choose.
type assertionHeader struct {
	Algorithm jose.SignatureAlgorithm `json:"alg"`
	Type      string                  `json:"typ"`
	KeySet    string                  `json:"jku"`
}

// assertionClaims are those of RFC 7523 §3.
type assertionClaims struct {
	Issuer    string           `json:"iss"`
	Subject   string           `json:"sub"`
	Audience  jwt.Audience     `json:"aud"`
	Expiry    *jwt.NumericDate `json:"exp"`
	NotBefore *jwt.NumericDate `json:"nbf"`
	IssuedAt  *jwt.NumericDate `json:"iat"`
	ID        string           `json:"jti"`
}

// PrivateKeyJWT is the client authentication method of RFC 7523.
const PrivateKeyJWT = "private_key_jwt"

func invalidAssertion(description string) error {
	return oauth2.InvalidClient("client_assertion: " + description)
}

func decodePart(part string, to any) error {
	decoded, err := base64.RawURLEncoding.DecodeString(part)
	if err != nil {
		return err
	}
	return strictjson.Unmarshal(decoded, to)
}

// decodeAssertion decodes an assertion whose signature is not checked yet.
func decodeAssertion(raw string) (*assertionHeader, *assertionClaims, error) {
	header, claims := new(assertionHeader), new(assertionClaims)
	parts := strings.Split(raw, ".")
	if len(parts) != 3 || decodePart(parts[0], header) != nil || decodePart(parts[1], claims) != nil {
		return nil, nil, invalidAssertion("this is no JWT")
	}
	return header, claims, nil
}

// verifyAssertion checks the signature of an assertion by a client's keys.
func verifyAssertion(ctx context.Context, keys *relyingparty.KeySet, raw string) error {
	_, err := keys.VerifySignature(ctx, raw)
	if err == nil {
		return nil
	}
	e := oauth2.InvalidClient("client_assertion: the keys of the client cannot be had at its jwks_uri")
	if errors.Is(err, relyingparty.ErrSignature) || errors.Is(err, relyingparty.ErrUnknownKey) {
		e.Description = "client_assertion: the signature is not by the registered key with this kid and alg"
	}
	e.Err = err
	return e
}

// check checks the claims once the signature is verified (RFC 7523 §3). There must be one
// audience: any other could use the assertion here.
func (c *assertionClaims) check(clientID string, audiences []string, now time.Time) error {
	late := func(d *jwt.NumericDate) bool { return d != nil && d.Time().After(now.Add(assertionLeeway)) }
	switch {
	case c.Issuer != clientID || c.Subject != clientID:
		return invalidAssertion("iss and sub must both be the client_id")
	case len(c.Audience) != 1 || !slices.Contains(audiences, c.Audience[0]):
		return invalidAssertion("aud must be the issuer or, unless the client is bound to that, the address of the token endpoint, alone")
	case c.Expiry == nil || !now.Before(c.Expiry.Time().Add(assertionLeeway)):
		return invalidAssertion("exp is missing, or over")
	case c.Expiry.Time().After(now.Add(maxAssertionLifetime + assertionLeeway)):
		return invalidAssertion("exp must be within five minutes")
	case late(c.NotBefore) || late(c.IssuedAt):
		return invalidAssertion("nbf or iat is still to come")
	case c.ID == "":
		return invalidAssertion("jti is missing")
	}
	return nil
}
