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

// configuredStore is the durable store of a configuration that does not run.
type configuredStore struct {
	*stores.Copy
	keys  keysPlace
	close func()
}

// keysPlace is where the signing keys and registered clients of a configuration are.
type keysPlace struct {
	inStore bool // as store_key says
	storage string
}

// storeConfiguration is what matters of a configuration.
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

// storeOpener opens the durable stores of configurations, and starts nothing else of them.
type storeOpener struct {
	adapter     string        // of configurations that are neither JSON nor Caddyfiles by their names
	lockTimeout time.Duration // for a gateway that may still be ending
}

func (o storeOpener) read(path string) (c storeConfiguration, err error) {
	adapter := o.adapter
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
		return c, fhirbase.ErrNone
	}
	return c, nil
}

// open opens the store of the configuration at path. A file is made if it may be.
func (o storeOpener) open(ctx context.Context, path string, mayMake bool) (*configuredStore, error) {
	c, err := o.read(path)
	if err != nil {
		return nil, err
	}
	provisioned, err := caddy.ProvisionContext(&caddy.Config{StorageRaw: c.Storage})
	if err != nil {
		return nil, err
	}
	modules, cancel := caddy.NewContext(provisioned)
	fhir := c.Apps.FHIR
	durable, err := o.openDurable(ctx, modules, stores.Config{Issuer: fhir.Issuer, StoreRaw: fhir.Store}, path, mayMake)
	if err != nil {
		cancel()
		return nil, err
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %s %s", durable.Identity, fhir.Issuer, fhir.Store))
	durable.Identity = fmt.Sprintf("%x", sum)
	return &configuredStore{durable, keysPlace{len(fhir.StoreKeys) > 0, storageSettings(modules)}, cancel}, nil
}

// storageSettings tells Caddy's storage from another.
func storageSettings(ctx caddy.Context) string {
	settings, err := json.Marshal(ctx.Storage())
	if err != nil {
		return fmt.Sprintf("%p", ctx.Storage())
	}
	return fmt.Sprintf("%T %s", ctx.Storage(), settings)
}

func (o storeOpener) openDurable(ctx context.Context, modules caddy.Context, c stores.Config, path string, mayMake bool) (*stores.Copy, error) {
	set, err := stores.Load(modules, c)
	if err != nil {
		return nil, err
	}
	return set.OpenDurable(ctx, path, mayMake, o.lockTimeout)
}

// keysAt says where the signing keys and registered clients are after a copy.
func (s *configuredStore) keysAt(to *configuredStore) string {
	same := s.keys.storage == to.keys.storage
	switch {
	case s.keys.inStore && to.keys.inStore:
		return "Signing keys and registered clients were copied too. The keys are sealed: keep store_key as it is."
	case s.keys.inStore:
		return "Signing keys and registered clients are in the store, sealed, but --to has no store_key: without it all tokens end, and clients register again."
	case to.keys.inStore && same:
		return "Signing keys and registered clients are still in Caddy's storage. The first gateway that starts with store_key copies them to the store."
	case same:
		return "Signing keys and registered clients stay in Caddy's storage, which both configurations share."
	}
	return "Signing keys and registered clients are in Caddy's storage, which is another one in --to: copy them with caddy storage export and import, or all tokens end."
}

var _ store.Exporter = (*configuredStore)(nil)
