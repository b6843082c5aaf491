package keyring

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// Keys is what an authorization server needs of a [Keyring].
type Keys interface {
	Signing
	Sealing
	Storing

	// Key returns the public key with an id, or [ErrUnknownKey].
	Key(ctx context.Context, kid string) (jose.JSONWebKey, error)

	// JWKS returns the published keys as a JWK Set (RFC 7517 §5).
	JWKS(ctx context.Context) ([]byte, error)

	// Has reports whether the keyring still has a key.
	Has(ctx context.Context, kid string) (bool, error)
}

// Signing signs tokens.
type Signing interface {
	// Signer returns the signer of new tokens of a typ with an algorithm.
	Signer(ctx context.Context, alg jose.SignatureAlgorithm, typ string) (jose.Signer, error)
}

// Sealing seals data that browsers keep for us.
type Sealing interface {
	// Seal encrypts and authenticates a text and the present time. It opens only with
	// the same binding.
	Seal(ctx context.Context, text, binding string) (string, error)

	// Unseal returns a text that was sealed no longer than maxAge ago, or [ErrUnsealed].
	Unseal(ctx context.Context, sealed, binding string, maxAge time.Duration) (string, error)

	// MAC returns a digest that cannot be computed without the keys.
	MAC(ctx context.Context, text string) ([]byte, error)
}

// Storing seals what is stored for longer than browsers keep anything.
type Storing interface {
	// SealStored encrypts and authenticates a text. It opens only with the same binding.
	SealStored(ctx context.Context, text, binding string) (string, error)

	// UnsealStored returns a text that SealStored sealed, or [ErrUnsealed].
	UnsealStored(ctx context.Context, sealed, binding string) (string, error)
}

// Sign makes a JWT of a typ, without go-jose's builder, which marshals the claims twice.
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
