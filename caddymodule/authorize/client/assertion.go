package client

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/upstream"
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

func invalidAssertion(description string) error {
	return oauth2.InvalidClient("client_assertion: " + description)
}

// authenticateAssertion is private_key_jwt (RFC 7523 §2.2, OpenID Connect Core §9,
// SMART App Launch 2.2, Asymmetric Authentication).
func (a *Authenticator) authenticateAssertion(r *http.Request, p oauth2.Parameters) (*Client, error) {
	if p.Get("client_assertion_type") != assertionType {
		return nil, oauth2.InvalidRequest("client_assertion_type must be " + assertionType)
	}
	raw := p.Get("client_assertion")
	client, claims, err := a.assertingClient(r.Context(), raw)
	switch {
	case err != nil:
		return nil, err
	case p.Get("client_id") != "" && p.Get("client_id") != client.ID:
		return nil, oauth2.InvalidRequest("client_id is not the client that authenticated")
	}
	if err := client.verifyAssertion(r.Context(), raw); err != nil {
		return nil, err
	}
	audiences := []string{a.Issuer}
	if !client.IssuerAudience {
		audiences = append(audiences, a.Issuer+endpoint.Token, a.Issuer+r.URL.Path)
	}
	now := store.Now(a.Durable) // the same at all gateways, until the entry of the jti expires
	if err := claims.check(client.ID, audiences, now); err != nil {
		return nil, err
	}
	return client, a.useAssertion(r.Context(), claims, now)
}

// assertingClient returns the claims of an assertion, and the client that they name. The
// signature is not checked yet.
func (a *Authenticator) assertingClient(ctx context.Context, raw string) (*Client, *assertionClaims, error) {
	parts := strings.Split(raw, ".")
	var header assertionHeader
	claims := new(assertionClaims)
	if len(parts) != 3 || decodePart(parts[0], &header) != nil || decodePart(parts[1], claims) != nil {
		return nil, nil, invalidAssertion("this is no JWT")
	}
	client, err := a.Clients.Find(ctx, claims.Subject)
	switch {
	case err != nil:
		return nil, nil, err
	case client == nil || client.keys == nil || client.RequestObjects.KeysOnly:
		return nil, nil, invalidAssertion("no client with this sub has keys here")
	case !slices.Contains(AssertionAlgorithms, header.Algorithm):
		return nil, nil, invalidAssertion("alg is not one of those that token_endpoint_auth_signing_alg_values_supported lists")
	case client.AssertionAlgorithm != "" && header.Algorithm != jose.SignatureAlgorithm(client.AssertionAlgorithm):
		return nil, nil, invalidAssertion("alg is not the client's token_endpoint_auth_signing_alg")
	case header.Type != "" && !strings.EqualFold(header.Type, "JWT"):
		return nil, nil, invalidAssertion("typ must be JWT")
	case header.KeySet != "" && header.KeySet != client.JWKSURI:
		return nil, nil, invalidAssertion("jku is not the address of keys that is registered")
	}
	return client, claims, nil
}

func decodePart(part string, to any) error {
	decoded, err := base64.RawURLEncoding.DecodeString(part)
	if err != nil {
		return err
	}
	return strictjson.Unmarshal(decoded, to)
}

func (c *Client) verifyAssertion(ctx context.Context, raw string) error {
	_, err := c.keys.VerifySignature(ctx, raw)
	if err == nil {
		return nil
	}
	e := oauth2.InvalidClient("client_assertion: the keys of the client cannot be had at its jwks_uri")
	if errors.Is(err, upstream.ErrSignature) || errors.Is(err, upstream.ErrUnknownKey) {
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

// useAssertion accepts each jti once (RFC 7523 §3), across restarts and gateways. It can be
// sent again if the request fails with a server error.
func (a *Authenticator) useAssertion(ctx context.Context, c *assertionClaims, now time.Time) error {
	key, mark := store.Key("assertion", c.Subject+"\x00"+c.ID), oauth2.RandomBytes(8)
	err := a.Durable.Add(ctx, key, mark, c.Expiry.Time().Sub(now)+assertionLeeway)
	switch {
	case errors.Is(err, store.ErrExists):
		return invalidAssertion("jti was used already")
	case err == nil, errors.Is(err, store.ErrUnavailable): // it may be stored all the same
		audit.FromContext(ctx).Release = func(ctx context.Context) {
			if err := a.releaseAssertion(context.WithoutCancel(ctx), key, mark); err != nil {
				a.Logger.ErrorContext(ctx, "the client assertion of a request that failed may stay used", "error", err)
			}
		}
	}
	return err
}

// releaseAssertion forgets an assertion if it was used with this mark, and not before.
func (a *Authenticator) releaseAssertion(ctx context.Context, key string, mark []byte) error {
	held, err := a.Durable.Get(ctx, key)
	if err == nil && bytes.Equal(held, mark) {
		err = a.Durable.Delete(ctx, key)
	}
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	return err
}
