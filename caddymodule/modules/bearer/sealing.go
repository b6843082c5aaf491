package bearer

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/paging"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
)

// processSealing seals with a key of this process, for a guard without the fhir app, whose keys outlive it: links to
// pages end with a restart.
type processSealing struct{}

var processSealer = sync.OnceValues(func() (*keyring.Sealer, error) {
	key := make([]byte, 32)
	rand.Read(key) // never fails
	return keyring.NewSealer(key)
})

// Seal implements enforce.Sealing.
func (processSealing) Seal(_ context.Context, text, binding string) (string, error) {
	sealer, err := processSealer()
	if err != nil {
		return "", err
	}
	return sealer.Seal(text, binding), nil
}

// Unseal implements enforce.Sealing.
func (processSealing) Unseal(_ context.Context, sealed, binding string, maxAge time.Duration) (string, error) {
	sealer, err := processSealer()
	if err != nil {
		return "", err
	}
	return sealer.Unseal(sealed, binding, maxAge)
}

// keySealing seals with keys that all gateways are given.
type keySealing struct{ keys keyring.SharedKeys }

// Seal implements enforce.Sealing.
func (s keySealing) Seal(_ context.Context, text, binding string) (string, error) {
	return s.keys.Seal(text, binding), nil
}

// Unseal implements enforce.Sealing.
func (s keySealing) Unseal(_ context.Context, sealed, binding string, maxAge time.Duration) (string, error) {
	return s.keys.Unseal(sealed, binding, maxAge)
}

// sealing seals links to pages and jobs: with the keys of the app, or without it with the seal keys.
func (h *Bearer) sealing() (paging.Sealing, error) {
	switch {
	case h.app != nil && len(h.SealKeys) > 0:
		return nil, errors.New("seal_key is for gateways without the fhir global option, whose own keys seal links; for several gateways give that store_key")
	case h.app != nil:
		return h.app.Keys(), nil
	case len(h.SealKeys) == 0:
		return processSealing{}, nil
	}
	keys, err := option.SharedKeys("seal_key", h.SealKeys, option.NewSealKeys)
	return keySealing{keys}, err
}

var (
	_ paging.Sealing = processSealing{}
	_ paging.Sealing = keySealing{}
)
