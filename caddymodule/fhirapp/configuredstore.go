package fhirapp

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fhirbase"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/modules/stores"
)

// ConfiguredStore is the durable store of a configuration that has not been started.
type ConfiguredStore struct {
	*stores.Copy
	Keys  KeysLocation // location of the signing keys
	Close func()       // must be called to release the store
}

// KeysLocation is the location of a configuration's signing keys and registered clients.
type KeysLocation struct {
	InStore bool   // whether store_key is set
	Storage string // identity of Caddy's storage
}

// storeConfiguration contains the parts of a configuration that StoreOpener needs.
type storeConfiguration struct {
	Storage json.RawMessage `json:"storage"`
	Apps    struct {
		FHIR *struct {
			Issuer    string          `json:"issuer"`
			Store     json.RawMessage `json:"store"`
			StoreKeys []string        `json:"store_keys"`
		} `json:"fhir"`
	} `json:"apps"`
}

// StoreOpener opens the durable store of a configuration without starting the configuration.
type StoreOpener struct {
	Adapter     string        // config adapter for file names that indicate neither JSON nor a Caddyfile
	LockTimeout time.Duration // maximum wait for a stopping gateway to release the lock
}

func (o StoreOpener) readConfiguration(path string) (c storeConfiguration, err error) {
	adapter := o.Adapter
	if strings.EqualFold(filepath.Ext(path), ".json") {
		adapter = ""
	}
	text, _, _, err := caddycmd.LoadConfig(path, adapter)
	if err != nil {
		return c, err
	}
	if err := json.Unmarshal(text, &c); err != nil {
		return c, err
	}
	if c.Apps.FHIR == nil {
		return c, fhirbase.ErrNoApp
	}
	return c, nil
}

// Open opens the store of the configuration at path. If create is true, it creates a missing store file.
func (o StoreOpener) Open(ctx context.Context, path string, create bool) (*ConfiguredStore, error) {
	c, err := o.readConfiguration(path)
	if err != nil {
		return nil, err
	}
	provisioned, err := caddy.ProvisionContext(&caddy.Config{StorageRaw: c.Storage})
	if err != nil {
		return nil, err
	}
	modules, cancel := caddy.NewContext(provisioned)
	fhir := c.Apps.FHIR
	durable, err := o.openDurable(ctx, modules, stores.Config{Issuer: fhir.Issuer, StoreRaw: fhir.Store}, path, create)
	if err != nil {
		cancel()
		return nil, err
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %s %s", durable.Identity, fhir.Issuer, fhir.Store))
	durable.Identity = fmt.Sprintf("%x", sum)
	return &ConfiguredStore{durable, KeysLocation{len(fhir.StoreKeys) > 0, storageIdentity(modules)}, cancel}, nil
}

// storageIdentity returns a string that identifies one of Caddy's storages.
func storageIdentity(ctx caddy.Context) string {
	settings, err := json.Marshal(ctx.Storage())
	if err != nil {
		return fmt.Sprintf("%p", ctx.Storage())
	}
	return fmt.Sprintf("%T %s", ctx.Storage(), settings)
}

func (o StoreOpener) openDurable(ctx context.Context, modules caddy.Context, c stores.Config, path string, create bool) (*stores.Copy, error) {
	set, err := stores.Load(modules, c)
	if err != nil {
		return nil, err
	}
	return set.OpenDurable(ctx, path, create, o.LockTimeout)
}

var _ store.Exporter = (*ConfiguredStore)(nil)
