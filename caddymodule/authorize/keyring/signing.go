package keyring

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// Keys are what an authorization server asks of a [Keyring].
type Keys interface {
	Verifying
	Signing
	Sealing
}

// Verifying knows the public keys of tokens.
type Verifying interface {
	// Key returns the public key with an id. Its error is [ErrUnknownKey] where there is
	// none.
	Key(ctx context.Context, kid string) (jose.JSONWebKey, error)

	// JWKS returns the published keys as a JWK Set (RFC 7517 §5).
	JWKS(ctx context.Context) ([]byte, error)

	// Has reports whether a key is still among ours.
	Has(ctx context.Context, kid string) (bool, error)
}

// Signing signs tokens.
type Signing interface {
	// Signer returns the signer of new tokens of a type for an algorithm.
	Signer(ctx context.Context, alg jose.SignatureAlgorithm, typ string) (jose.Signer, error)
}

// Sealing seals what browsers keep for us, and knows names again without keeping them.
type Sealing interface {
	// Seal encrypts a text for whoever knows the binding.
	Seal(ctx context.Context, text, binding string) (string, error)

	// Unseal opens what was sealed no longer than maxAge ago. Its error is
	// [ErrUnsealed] where it is not genuine, too old, or bound to something else.
	Unseal(ctx context.Context, sealed, binding string, maxAge time.Duration) (string, error)

	// MAC is a digest of a text that nobody without the keys can make.
	MAC(ctx context.Context, text string) ([]byte, error)
}

// Sign makes a JWT of a type. It marshals the claims itself: go-jose's builder does so
// twice, by way of a map.
func Sign(ctx context.Context, keys Signing, alg jose.SignatureAlgorithm, typ string, claims any) (string, error) {
	signer, err := keys.Signer(ctx, alg, typ)
	if err != nil {
		return "", err
	}
	payload, err := json.Marshal(claims)
	if err != nil {
		return "", fmt.Errorf("writing a token: %w", err)
	}
	jws, err := signer.Sign(payload)
	if err != nil {
		return "", fmt.Errorf("signing a token: %w", err)
	}
	return jws.CompactSerialize()
}

var _ Keys = (*Keyring)(nil)
