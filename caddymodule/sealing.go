package caddymodule

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/enforce"
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
func sealing(app *App, sealKeys []string) (enforce.Sealing, error) {
	switch {
	case app != nil && len(sealKeys) > 0:
		return nil, errors.New("seal_key is for gateways without the fhir global option, whose own keys seal links; for several gateways give that store_key")
	case app != nil:
		return app.keys, nil
	case len(sealKeys) == 0:
		return processSealing{}, nil
	}
	keys, err := sharedKeys("seal_key", sealKeys, newSealKeys)
	return keySealing{keys}, err
}

func newSealKeys(secrets ...string) (keyring.SharedKeys, error) {
	return keyring.NewSharedKeys("links", secrets...)
}

// sharedKeys makes the keys of an option, with its placeholders replaced.
func sharedKeys(option string, configured []string, newKeys func(...string) (keyring.SharedKeys, error)) (keyring.SharedKeys, error) {
	var secrets []string
	for _, key := range configured {
		secret, err := resolveSecret(option, key)
		if err != nil {
			return nil, err
		}
		secrets = append(secrets, secret)
	}
	keys, err := newKeys(secrets...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", option, err)
	}
	return keys, nil
}

// checkSharedKey checks a key of an option.
func checkSharedKey(option string) func(string) error {
	return func(secret string) error {
		if _, err := newSealKeys(secret); err != nil {
			return fmt.Errorf("%s %w", option, err)
		}
		return nil
	}
}

var (
	_ enforce.Sealing = processSealing{}
	_ enforce.Sealing = keySealing{}
)
