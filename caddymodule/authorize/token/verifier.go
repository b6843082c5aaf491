package token

import (
	"context"
	"crypto/sha256"
	"errors"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/revocation"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/boundedcache"
)

var errInvalidToken = errors.New("not a valid token of ours")

// ErrInvalidHint says that an id_token_hint is not an ID token of this server.
var ErrInvalidHint = errors.New("id_token_hint is no ID token of ours")

// maxSignatures is how many verified tokens are cached, each about 1 KiB.
const maxSignatures = 20_000

// verifiedToken is a token with a valid signature. It is immutable.
type verifiedToken struct {
	claims *accessTokenClaims
	kid    string
}

// Verifier checks tokens that this server issued.
type Verifier struct {
	issuer, fhirBase string
	keys             keyring.Keys
	signatures       boundedcache.Cache[[sha256.Size]byte, verifiedToken]
	revocations      *revocation.Revocations
	holders          *Holders
}

// verify validates an access token (RFC 9068 §4). Its error is errInvalidToken if the token
// is expired, revoked, or not one of this server.
func (vr *Verifier) verify(ctx context.Context, raw string) (*accessTokenClaims, error) {
	return vr.verifyUntil(ctx, raw, 0)
}

// revocable is verify for a token that may be revoked: by a clock that jumped ahead, it may have expired.
func (vr *Verifier) revocable(ctx context.Context, raw string) (*accessTokenClaims, error) {
	return vr.verifyUntil(ctx, raw, revocation.ClockJump)
}

// verifyUntil is verify for a token that expired less than a time ago.
func (vr *Verifier) verifyUntil(ctx context.Context, raw string, expired time.Duration) (*accessTokenClaims, error) {
	v, err := vr.verified(ctx, raw)
	if err != nil {
		return nil, err
	}
	if !vr.current(v.claims, expired) {
		return nil, errInvalidToken
	}
	revoked, err := vr.revocations.Revoked(ctx, v.claims.ID)
	if err != nil {
		return nil, err
	}
	holder, err := vr.holders.Find(ctx, v.claims.token())
	if err == nil && (revoked || holder == nil) {
		err = errInvalidToken
	}
	return v.claims, err
}

// verified checks the signature of an access token. A cached result counts as long as its
// key is in the keyring; expiry and revocation are not cached.
func (vr *Verifier) verified(ctx context.Context, raw string) (verifiedToken, error) {
	digest := sha256.Sum256([]byte(raw)) // of the whole: a part could be another token's too
	if known, ok := vr.signatures.Get(digest); ok {
		has, err := vr.keys.Has(ctx, known.kid)
		if err != nil || has {
			return known, err
		}
	}
	v, err := vr.checkSignature(ctx, raw)
	if err == nil && vr.current(v.claims, 0) {
		vr.signatures.Put(digest, v, 1)
	}
	return v, err
}

func (vr *Verifier) checkSignature(ctx context.Context, raw string) (verifiedToken, error) {
	claims := new(accessTokenClaims)
	kid, err := vr.open(ctx, raw, keyring.AccessTokenType, []jose.SignatureAlgorithm{keyring.AccessTokenAlgorithm}, claims)
	if errors.Is(err, keyring.ErrUnknownKey) {
		err = errInvalidToken
	}
	if err != nil {
		return verifiedToken{}, err
	}
	return verifiedToken{claims, kid}, nil
}

// open checks the signature of a JWT of one type, and reads its claims. Its error is
// errInvalidToken, or [keyring.ErrUnknownKey] if the key may have been retired.
func (vr *Verifier) open(ctx context.Context, raw, typ string, algorithms []jose.SignatureAlgorithm, claims any) (kid string, err error) {
	token, err := jwt.ParseSigned(raw, algorithms)
	if err != nil || token.Headers[0].ExtraHeaders[jose.HeaderType] != typ {
		return "", errInvalidToken
	}
	kid = token.Headers[0].KeyID
	key, err := vr.keys.Key(ctx, kid)
	if err != nil {
		return "", err
	}
	if err := token.Claims(key, claims); err != nil {
		return "", errInvalidToken
	}
	return kid, nil
}

// current reports whether an access token is of this server, and expired less than a time ago, if it did.
func (vr *Verifier) current(c *accessTokenClaims, expired time.Duration) bool {
	return c.Issuer == vr.issuer && c.Audience == vr.fhirBase && c.Expiry != nil && time.Now().Before(c.Expiry.Time().Add(expired))
}

// Hint reads an id_token_hint, expired or not (OpenID Connect Core §3.1.2.1). Its error is
// [ErrInvalidHint], or [keyring.ErrUnknownKey] if the key may have been retired.
func (vr *Verifier) Hint(ctx context.Context, raw string) (*IDTokenClaims, error) {
	claims := new(IDTokenClaims)
	_, err := vr.open(ctx, raw, keyring.IDTokenType, keyring.IDTokenAlgorithms, claims)                        // not a logout token
	if errors.Is(err, errInvalidToken) || err == nil && (claims.Issuer != vr.issuer || claims.Expiry == nil) { // signed userinfo has no exp
		err = ErrInvalidHint
	}
	if err != nil {
		return nil, err
	}
	return claims, nil
}
