package authorize

import (
	"context"
	"crypto/sha256"
	"errors"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

var errInvalidToken = errors.New("not a valid token of ours")

// verify checks an access token that comes back to us (RFC 9068 §4).
func (s *Server) verify(ctx context.Context, raw string) (*accessTokenClaims, error) {
	v, err := s.verified(ctx, raw)
	if err != nil {
		return nil, err
	}
	if !s.current(v.claims) {
		return nil, errInvalidToken
	}
	revoked, err := s.Revoked(ctx, v.claims.ID)
	if err != nil {
		return nil, err
	}
	holder, err := s.Holder(ctx, v.claims.token())
	if err == nil && (revoked || holder == nil) {
		err = errInvalidToken
	}
	return v.claims, err
}

// verified checks the signature of a token, or remembers that it did so before.
// What is remembered counts as long as the key is still ours.
func (s *Server) verified(ctx context.Context, raw string) (verifiedToken, error) {
	digest := sha256.Sum256([]byte(raw)) // of the whole: a part of it would stand for others too
	if known, ok := s.remembered.get(digest); ok {
		has, err := s.keys.Has(ctx, known.kid)
		if err != nil || has {
			return known, err
		}
	}
	v, err := s.checkSignature(ctx, raw)
	if err == nil && s.current(v.claims) {
		s.remembered.put(digest, v)
	}
	return v, err
}

func (s *Server) checkSignature(ctx context.Context, raw string) (verifiedToken, error) {
	claims := new(accessTokenClaims)
	kid, err := s.open(ctx, raw, keyring.AccessTokenType, []jose.SignatureAlgorithm{keyring.AccessTokenAlgorithm}, claims)
	if errors.Is(err, keyring.ErrUnknownKey) {
		err = errInvalidToken
	}
	if err != nil {
		return verifiedToken{}, err
	}
	return verifiedToken{claims, kid}, nil
}

// open checks the signature of a JWT of ours, of one kind, and reads its claims. Its
// error is errInvalidToken, or ErrUnknownKey where it may be one of ours whose key is
// no longer kept.
func (s *Server) open(ctx context.Context, raw, typ string, algorithms []jose.SignatureAlgorithm, claims any) (kid string, err error) {
	token, err := jwt.ParseSigned(raw, algorithms)
	if err != nil || token.Headers[0].ExtraHeaders[jose.HeaderType] != typ {
		return "", errInvalidToken
	}
	kid = token.Headers[0].KeyID
	key, err := s.keys.Key(ctx, kid)
	if err != nil {
		return "", err
	}
	if err := token.Claims(key, claims); err != nil {
		return "", errInvalidToken
	}
	return kid, nil
}

func (s *Server) current(c *accessTokenClaims) bool {
	return c.Issuer == s.issuer && c.Audience == s.fhirBase && c.Expiry != nil && time.Now().Before(c.Expiry.Time())
}
