package authorize

import (
	"context"
	"errors"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

var errBadHint = errors.New("id_token_hint is no ID token of ours")

// hint reads an ID token of ours that comes back as an id_token_hint, expired or
// not (OpenID Connect Core §3.1.2.1). Its error is errBadHint, or ErrUnknownKey
// where it may be one of ours whose key is no longer kept.
func (s *Server) hint(ctx context.Context, raw string) (*idTokenClaims, error) {
	token, err := jwt.ParseSigned(raw, idTokenAlgorithms)
	if err != nil || token.Headers[0].ExtraHeaders[jose.HeaderType] != idTokenType { // a logout token is none
		return nil, errBadHint
	}
	key, err := s.keys.Key(ctx, token.Headers[0].KeyID)
	if err != nil {
		return nil, err
	}
	claims := new(idTokenClaims)
	if token.Claims(key, claims) != nil || claims.Issuer != s.issuer {
		return nil, errBadHint
	}
	return claims, nil
}
