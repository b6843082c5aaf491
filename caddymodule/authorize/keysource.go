package authorize

import (
	"context"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// sealer seals what browsers keep for us, and knows names again without keeping them.
type sealer interface {
	Seal(ctx context.Context, text, binding string) (string, error)
	Unseal(ctx context.Context, sealed, binding string, maxAge time.Duration) (string, error)
	Mac(ctx context.Context, text string) ([]byte, error)
}

// signing signs tokens.
type signing interface {
	Signer(ctx context.Context, alg jose.SignatureAlgorithm, typ string) (jose.Signer, error)
}

// Keys is what a [Server] asks of its [keyring.Keyring].
type Keys interface {
	Key(ctx context.Context, kid string) (jose.JSONWebKey, error)
	JWKS(ctx context.Context) ([]byte, error)
	Has(ctx context.Context, kid string) (bool, error)
	signing
	sealer
}
