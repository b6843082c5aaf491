package caddymodule

import (
	"context"
	"crypto/rand"
	"sync"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
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
