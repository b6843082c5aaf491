package fhirapp

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/sealedstorage"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fhirbase"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/sharedkey"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/modules/stores"
)

// keyStorage is where the signing keys are: with store_key in the durable store, and otherwise in Caddy's storage.
func keyStorage(a *App) (keyring.Storage, error) {
	if len(a.StoreKeys) == 0 {
		return keyring.Locked{LockedStorage: a.ctx.Storage()}, nil
	}
	keys, err := sealingKeys(a.stores, a.StoreKeys)
	return &sealedstorage.Storage{Store: a.stores.Durable, Keys: keys, Earlier: a.ctx.Storage()}, err
}

// keyPlace tells where the keys are from other places.
func keyPlace(a *App) string {
	place := fmt.Sprintf("%p", a.ctx.Storage())
	if settings, err := json.Marshal(a.ctx.Storage()); err == nil {
		place = fmt.Sprintf("%T %s", a.ctx.Storage(), settings)
	}
	if len(a.StoreKeys) > 0 {
		place += " " + string(a.StoreRaw)
	}
	return place + " " + KeysName(a.Issuer)
}

// KeysName returns the name of the signing keys of an issuer in Caddy's storage.
func KeysName(issuer string) string { return "fhir/keys/" + fhirbase.StorageName(issuer) + ".json" }

// sealingKeys are the store keys, with their placeholders replaced.
func sealingKeys(s *stores.Set, configured []string) (keyring.SharedKeys, error) {
	if s.KeepsDurable() != nil {
		return nil, errors.New("store_key puts the signing keys into the store, and those in memory would be lost in a restart; use another store")
	}
	return sharedkey.Resolve("store_key", configured, sealedstorage.NewKeys)
}
