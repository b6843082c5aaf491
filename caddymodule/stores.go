package caddymodule

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/certmagic"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store/replica"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store/storecopy"
)

// Bounds of the revocation max lag. A store is heard each second, if all is well.
const (
	minRevocationLag = 2 * time.Second
	maxRevocationLag = time.Hour
)

// sharedGuest is a guest module whose store several gateways share.
type sharedGuest interface{ shared() *pooledShared }

func (s *sharedStore) shared() *pooledShared { return s.pooledShared }

// startedStore is a guest module that must be started, when the configuration takes over.
type startedStore interface{ start(*slog.Logger) error }

// loadStores loads the guest modules. A store that gateways share is the durable store too, unless that is configured.
func (a *App) loadStores(ctx caddy.Context) (err error) {
	if a.StoreRaw == nil {
		a.StoreRaw = json.RawMessage(`{"store":"memory"}`)
	}
	if a.store, err = a.loadStore(ctx, "StoreRaw"); err != nil {
		return err
	}
	if a.DurableRaw == nil && isReplica(a.store) {
		a.durable = a.store
		return a.checkStores()
	}
	if a.DurableRaw == nil {
		a.DurableRaw = json.RawMessage(`{"store":"file"}`)
	}
	if a.durable, err = a.loadStore(ctx, "DurableRaw"); err != nil {
		return err
	}
	return a.checkStores()
}

func (a *App) loadStore(ctx caddy.Context, field string) (store.Store, error) {
	module, err := ctx.LoadModule(a, field)
	if err != nil {
		return nil, fmt.Errorf("loading the store: %w", err)
	}
	if file, ok := module.(*FileStore); ok {
		if err := file.use(defaultStorePath(ctx.Storage(), a.Issuer)); err != nil {
			return nil, err
		}
	}
	if guest, ok := module.(sharedGuest); ok {
		if pooled := guest.shared(); !slices.Contains(a.shared, pooled) {
			a.shared = append(a.shared, pooled)
		}
		return guest.shared().replica, nil
	}
	local, ok := module.(store.Store)
	if !ok {
		return nil, fmt.Errorf("module %T is not a store", module)
	}
	if starter, ok := module.(startedStore); ok {
		a.local = append(a.local, starter)
	}
	return local, nil
}

// checkStores checks the stores against each other, and warns of what they cannot hold together.
func (a *App) checkStores() error {
	if len(a.shared) == 0 {
		if a.RevocationMaxLag != 0 {
			return errors.New("revocation_max_lag is for a store that several gateways share, such as redis or postgres")
		}
		return nil
	}
	if lag := time.Duration(a.RevocationMaxLag); lag > 0 && (lag < minRevocationLag || lag > maxRevocationLag) {
		return fmt.Errorf("revocation_max_lag %v must be between %v and %v", lag, minRevocationLag, maxRevocationLag)
	}
	if !isReplica(a.store) {
		a.logger.Warn("gateways share the durable store, but not the store: what one of them began, another refuses: codes, launches, pushed requests, sign-ins with a second factor; leave out store, to keep all in the durable one, or run one gateway only")
	}
	if !isReplica(a.durable) {
		a.logger.Warn("gateways share the store, but not the durable store: sessions, refresh tokens and consents are of one gateway, and it alone counts wrong passwords; leave out durable_store, to keep all in the store, or run one gateway only")
	}
	if files, ok := a.ctx.Storage().(*certmagic.FileStorage); ok && len(a.StoreKeys) == 0 {
		a.logger.Warn("gateways share the store, but signing keys and registered clients are in files: gateways with different files refuse each other's tokens; set store_key, or share the folder, or another storage of Caddy's", "folder", files.Path)
	}
	return nil
}

func isReplica(s store.Store) bool {
	_, ok := s.(*replica.Replica)
	return ok
}

// startStores opens the stores.
func (a *App) startStores() error {
	for _, local := range a.local {
		if err := local.start(a.logger); err != nil {
			return err
		}
	}
	maxLag := time.Duration(a.RevocationMaxLag)
	switch {
	case maxLag == 0:
		maxLag = replica.DefaultMaxLag
	case maxLag < 0:
		maxLag = replica.Unlimited
	}
	for _, shared := range a.shared {
		if err := shared.start(a.logger.With("store", shared.name), maxLag); err != nil {
			return fmt.Errorf("store %s: %w", shared.name, err)
		}
	}
	return a.checkCopied()
}

// checkCopied refuses a durable store that lacks entries which fhir-store copy has not copied yet.
func (a *App) checkCopied() error {
	ctx, cancel := context.WithTimeout(a.ctx, startTimeout)
	defer cancel()
	if err := storecopy.Check(ctx, a.durable); err != nil && !errors.Is(err, store.ErrUnavailable) && ctx.Err() == nil {
		return fmt.Errorf("durable store: %w", err)
	}
	return nil
}
