package token

import (
	"context"
	"errors"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
)

// ErrInvalidHint says that an id_token_hint is not an ID token of this server.
var ErrInvalidHint = errors.New("id_token_hint is no ID token of ours")

// Hint reads an ID token of ours that comes back as an id_token_hint, expired or
// not (OpenID Connect Core §3.1.2.1). Its error is errBadHint, or ErrUnknownKey
// where it may be one of ours whose key is no longer kept.
func (vr *Verifier) Hint(ctx context.Context, raw string) (*IDTokenClaims, error) {
	claims := new(IDTokenClaims)
	_, err := vr.open(ctx, raw, keyring.IDTokenType, keyring.IDTokenAlgorithms, claims) // a logout token is none
	if errors.Is(err, errInvalidToken) || err == nil && claims.Issuer != vr.issuer {
		err = ErrInvalidHint
	}
	if err != nil {
		return nil, err
	}
	return claims, nil
}
