package bearer

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/enforce"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/sharedkey"
)

// keySealing seals with keys, all of which open.
type keySealing struct{ keys keyring.SharedKeys }

// processSealing seals with a key of this process, for a guard without the fhir app, whose keys outlive it: links to
// pages end with a restart.
var processSealing = sync.OnceValues(func() (keySealing, error) {
	key := make([]byte, 32)
	rand.Read(key) // never fails
	sealer, err := keyring.NewSealer(key)
	return keySealing{keyring.SharedKeys{sealer}}, err
})

// Seal implements [enforce.Sealing].
func (s keySealing) Seal(_ context.Context, text, binding string) (string, error) {
	return s.keys.Seal(text, binding), nil
}

// Unseal implements [enforce.Sealing].
func (s keySealing) Unseal(_ context.Context, sealed, binding string, maxAge time.Duration) (string, error) {
	return s.keys.Unseal(sealed, binding, maxAge)
}

// newSealing seals links to pages and jobs: with the keys of the app, or without it with the seal keys.
func newSealing(app App, sealKeys []string) (enforce.Sealing, error) {
	switch {
	case app != nil && len(sealKeys) > 0:
		return nil, errors.New("seal_key is for gateways without the fhir global option, whose own keys seal links; for several gateways give that store_key")
	case app != nil:
		return app.Keys(), nil
	case len(sealKeys) == 0:
		return processSealing()
	}
	keys, err := sharedkey.Resolve("seal_key", sealKeys, sharedkey.NewLinkKeys)
	return keySealing{keys}, err
}

var _ enforce.Sealing = keySealing{}
