package upstream

import (
	"context"
	"fmt"
	"time"
)

// inlineLifetime is longer than any process.
const inlineLifetime = 100 * 365 * 24 * time.Hour

// NewInlineKeySet returns the KeySet of a JWK Set with at least one usable key.
func NewInlineKeySet(body []byte) (*KeySet, error) {
	set, err := parseJWKS(body)
	if err != nil {
		return nil, err
	}
	if len(set) == 0 {
		return nil, fmt.Errorf("%w: no public key for signatures that is understood", ErrKeys)
	}
	return &KeySet{&document[jwks]{
		pause: inlineLifetime,
		fetch: func(context.Context) (jwks, time.Duration, error) { return set, inlineLifetime, nil },
	}}, nil
}
