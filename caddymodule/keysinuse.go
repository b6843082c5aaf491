package caddymodule

import (
	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/failure"
)

// keysInUse keeps signing keys over reloads, by where they are stored, so that tokens stay valid if a key file was damaged
// or lost.
var keysInUse = caddy.NewUsagePool()

type pooledKeys struct{ *keyring.KeysInUse }

func (pooledKeys) Destruct() error { return nil }

// loadKeys makes the keyring, with the keys that the previous configuration had at that place. It reads nothing yet.
func (a *App) loadKeys(place string) error {
	storage, err := a.keyStorage()
	if err != nil {
		return err
	}
	a.keys = keyring.New(storage, keysName(a.Issuer), failure.Limit(a.logger))
	keys, _, err := keysInUse.LoadOrNew(place, func() (caddy.Destructor, error) {
		return pooledKeys{a.keys.InUse()}, nil
	})
	if err != nil {
		return err
	}
	a.pooled = place
	a.keys.TakeOver(keys.(pooledKeys).KeysInUse)
	return nil
}

var _ caddy.Destructor = pooledKeys{}
