package fhirapp

import (
	"sync"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fhirerror"
)

// statesInUse keep over reloads what the configuration before knew, by where the signing keys are stored.
var statesInUse = caddy.NewUsagePool()

type stateInUse struct {
	keys     *keyring.KeysInUse // so that tokens stay valid if a key file was damaged or lost
	retained sync.Map           // values of [Retained], by type
}

func (*stateInUse) Destruct() error { return nil }

// loadKeys makes the keyring, with the keys that the previous configuration had at that place, and takes over its other state.
// It reads nothing yet.
func (a *App) loadKeys(place string) error {
	storage, err := keyStorage(a)
	if err != nil {
		return err
	}
	a.keys = keyring.New(storage, KeysName(a.Issuer), fhirerror.Limit(a.logger))
	pooled, _, err := statesInUse.LoadOrNew(place, func() (caddy.Destructor, error) {
		return &stateInUse{keys: a.keys.InUse()}, nil
	})
	if err != nil {
		return err
	}
	a.pooled, a.state = place, pooled.(*stateInUse)
	a.keys.TakeOver(a.state.keys)
	return nil
}

var _ caddy.Destructor = (*stateInUse)(nil)
