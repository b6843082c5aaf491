package upstream

import (
	"context"
	"fmt"
	"time"
)

// inlineLifetime is longer than any process: keys that were told need no
// fetching.
const inlineLifetime = 100 * 365 * 24 * time.Hour

// NewInlineKeySet returns the KeySet of a JWK Set that is known already. One
// without any usable key is an error.
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
