package relyingparty

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	josejson "github.com/go-jose/go-jose/v4/json"
	"golang.org/x/oauth2"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/strictjson"
)

// Leeway is how far the provider's clock may be off (OpenID Connect Core §2).
const Leeway = time.Minute

// maxSubject bounds a sub, in bytes (OpenID Connect Core §2).
const maxSubject = 255

// idTokenClaims are what checkClaims needs, decoded strictly.
type idTokenClaims struct {
	Issuer          string   `json:"iss"`
	Subject         string   `json:"sub"`
	Nonce           string   `json:"nonce"`
	AuthorizedParty *string  `json:"azp"`
	AccessTokenHash *string  `json:"at_hash"`
	IssuedAt        *float64 `json:"iat"`
	AuthTime        *float64 `json:"auth_time"`
}

// verify validates the ID token of a sign-in (OpenID Connect Core §3.1.3.7), or, without a
// request, of a refresh (§12.2).
func (p *Provider) verify(ctx context.Context, m *metadata, tokens *oauth2.Token, r *AuthenticationRequest) (*Identity, error) {
	raw, _ := tokens.Extra("id_token").(string)
	if raw == "" {
		return nil, fmt.Errorf("%w: the token response has none", ErrIDToken)
	}
	claims := new(idTokenClaims)
	token, err := p.verifyToken(ctx, m, raw, ErrIDToken, claims)
	if err != nil {
		return nil, err
	}
	id := &Identity{Issuer: p.config.Issuer, Subject: claims.Subject, IDToken: raw, AuthTime: unixTime(claims.AuthTime), Held: heldBy(tokens)}
	var payload json.RawMessage
	if err = p.checkClaims(token, claims, tokens.AccessToken, r); err == nil {
		err = token.Claims(&payload)
	}
	if err == nil {
		id.Claims, err = decodeObject(payload)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrIDToken, err)
	}
	return id, nil
}

// verifyToken checks alg, signature, iss, aud, exp and nbf, and decodes the claims again:
// case-sensitive and without repeated names, which go-oidc does not insist on. Its error
// wraps defect if the token is at fault.
func (p *Provider) verifyToken(ctx context.Context, m *metadata, raw string, defect error, claims any) (*oidc.IDToken, error) {
	keys := &watchedKeySet{KeySet: p.keys}
	verifier := oidc.NewVerifier(p.config.Issuer, keys, &oidc.Config{
		ClientID: p.config.ClientID, SupportedSigningAlgs: m.Algorithms,
		Now: func() time.Time { return time.Now().Add(-Leeway) },
	})
	token, err := verifier.Verify(ctx, raw)
	switch {
	case keys.err != nil && !isTokenDefect(keys.err):
		return nil, keys.err // the keys could not be fetched
	case keys.err != nil:
		err = keys.err
	case err == nil:
		var payload json.RawMessage
		if err = token.Claims(&payload); err == nil {
			err = strictjson.Unmarshal(payload, claims)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", defect, err)
	}
	return token, nil
}

// checkClaims checks what go-oidc leaves to its caller.
func (p *Provider) checkClaims(token *oidc.IDToken, c *idTokenClaims, accessToken string, r *AuthenticationRequest) error {
	switch {
	case c.Issuer != token.Issuer || c.Subject != token.Subject:
		return errors.New("iss or sub is there in two spellings")
	case c.Subject == "" || len(c.Subject) > maxSubject:
		return fmt.Errorf("sub has %d bytes", len(c.Subject))
	case r != nil && c.Nonce != r.Nonce:
		return errors.New("nonce is not that of the request")
	}
	if err := p.checkParties(token.Audience, c.AuthorizedParty); err != nil {
		return err
	}
	if err := c.checkTimes(time.Now(), r); err != nil || c.AccessTokenHash == nil {
		return err
	}
	return token.VerifyAccessToken(accessToken)
}

// checkParties refuses a token issued to another client, even if its aud names us too.
func (p *Provider) checkParties(audience []string, authorized *string) error {
	others := slices.ContainsFunc(audience, func(id string) bool { return id != p.config.ClientID })
	switch {
	case authorized == nil && others:
		return fmt.Errorf("several audiences %.200q, but no azp", audience)
	case authorized != nil && *authorized != p.config.ClientID:
		return fmt.Errorf("azp is %.200q", *authorized)
	}
	return nil
}

// checkTimes checks iat, and auth_time in case the provider ignored max_age.
func (c *idTokenClaims) checkTimes(now time.Time, r *AuthenticationRequest) error {
	if c.IssuedAt == nil || unixTime(c.IssuedAt).After(now.Add(Leeway)) {
		return fmt.Errorf("iat is missing or to come: %v", unixTime(c.IssuedAt))
	}
	if r == nil {
		return nil
	}
	age, asked, err := r.maxAge()
	switch {
	case err != nil || !asked:
		return err
	case unixTime(c.AuthTime).Add(age + Leeway).Before(now): // or missing
		return fmt.Errorf("auth_time is missing or longer ago than max_age: %v", unixTime(c.AuthTime))
	}
	return nil
}

func unixTime(seconds *float64) time.Time {
	if seconds == nil {
		return time.Time{}
	}
	return time.Unix(int64(*seconds), 0)
}

// decodeObject keeps numbers as written, and refuses repeated names.
func decodeObject(data []byte) (object map[string]any, err error) {
	var names map[string]josejson.RawMessage
	if err := josejson.Unmarshal(data, &names); err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	if err := decoder.Decode(&object); err != nil {
		return nil, err
	}
	if object == nil {
		return nil, errors.New("no JSON object")
	}
	return object, nil
}
