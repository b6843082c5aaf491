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

// stores are those of an app.
type stores struct {
	store   store.Store
	durable store.Store
	shared  []*pooledShared
	local   []startedStore
	watched map[store.Store]*storeWatch
}

// watchedStore is a guest module whose store is tried from time to time.
type watchedStore interface{ watch() *storeWatch }

// loadStores loads an app's guest modules. A store that gateways share is the durable store too, unless that is configured.
func loadStores(ctx caddy.Context, a *App) (s stores, err error) {
	if a.StoreRaw == nil {
		a.StoreRaw = json.RawMessage(`{"store":"memory"}`)
	}
	if s.store, err = s.load(ctx, a, "StoreRaw"); err != nil {
		return s, err
	}
	if a.DurableRaw == nil && isReplica(s.store) {
		s.durable = s.store
		return s, nil
	}
	if a.DurableRaw == nil {
		a.DurableRaw = json.RawMessage(`{"store":"file"}`)
	}
	s.durable, err = s.load(ctx, a, "DurableRaw")
	return s, err
}

func (s *stores) load(ctx caddy.Context, a *App, field string) (store.Store, error) {
	module, err := ctx.LoadModule(a, field)
	if err != nil {
		return nil, fmt.Errorf("loading the store: %w", err)
	}
	if file, ok := module.(*FileStore); ok {
		if err := file.use(defaultStorePath(ctx.Storage(), a.Issuer)); err != nil {
			return nil, err
		}
	}
	if s.watched == nil {
		s.watched = map[store.Store]*storeWatch{}
	}
	if guest, ok := module.(sharedGuest); ok {
		s.watched[guest.shared().replica] = guest.shared().watch
		if pooled := guest.shared(); !slices.Contains(s.shared, pooled) {
			s.shared = append(s.shared, pooled)
		}
		return guest.shared().replica, nil
	}
	local, ok := module.(store.Store)
	if !ok {
		return nil, fmt.Errorf("module %T is not a store", module)
	}
	if w, ok := module.(watchedStore); ok {
		s.watched[local] = w.watch()
	} else {
		s.watched[local] = newLocalWatch(fmt.Sprintf("%T", module), local)
	}
	if starter, ok := module.(startedStore); ok {
		s.local = append(s.local, starter)
	}
	return local, nil
}

// checkLag checks the revocation max lag of these stores.
func (s *stores) checkLag(lag time.Duration) error {
	switch {
	case len(s.shared) == 0 && lag != 0:
		return errors.New("revocation_max_lag is for a store that several gateways share, such as redis or postgres")
	case lag > 0 && (lag < minRevocationLag || lag > maxRevocationLag):
		return fmt.Errorf("revocation_max_lag %v must be between %v and %v", lag, minRevocationLag, maxRevocationLag)
	}
	return nil
}

// warn warns of what gateways do not share, though they share one of the stores.
func (s *stores) warn(logger *slog.Logger, storage certmagic.Storage, keysInStore bool) {
	if len(s.shared) == 0 {
		return
	}
	if !isReplica(s.store) {
		logger.Warn("gateways share the durable store, but not the store: what one of them began, another refuses: codes, launches, pushed requests, sign-ins with a second factor; leave out store, to keep all in the durable one, or run one gateway only")
	}
	if !isReplica(s.durable) {
		logger.Warn("gateways share the store, but not the durable store: sessions, refresh tokens and consents are of one gateway, and it alone counts wrong passwords; leave out durable_store, to keep all in the store, or run one gateway only")
	}
	if files, ok := storage.(*certmagic.FileStorage); ok && !keysInStore {
		logger.Warn("gateways share the store, but signing keys and registered clients are in files: gateways with different files refuse each other's tokens; set store_key, or share the folder, or another storage of Caddy's", "folder", files.Path)
	}
}

func isReplica(s store.Store) bool {
	_, ok := s.(*replica.Replica)
	return ok
}

// start opens the stores. The lag is as configured.
func (s *stores) start(ctx context.Context, logger *slog.Logger, issuer string, maxLag time.Duration) error {
	for _, local := range s.local {
		if err := local.start(logger); err != nil {
			return err
		}
	}
	switch {
	case maxLag == 0:
		maxLag = replica.DefaultMaxLag
	case maxLag < 0:
		maxLag = replica.Unlimited
	}
	for _, shared := range s.shared {
		if err := shared.start(logger.With("store", shared.name), issuer, maxLag); err != nil {
			return fmt.Errorf("store %s: %w", shared.name, err)
		}
	}
	if err := s.checkCopied(ctx); err != nil {
		return err
	}
	if memory, ok := s.durable.(*MemoryStore); ok {
		memory.watched.keepsNothing("durable_store memory is the memory of this process: sessions and refresh tokens end with it")
	}
	if file, ok := s.durable.(*FileStore); ok {
		if err := file.claim(ctx, issuer); err != nil {
			return err
		}
	}
	for _, w := range s.watched {
		w.start(logger)
	}
	return nil
}

// checkCopied refuses a durable store that lacks entries which fhir-store copy has not copied yet.
func (s *stores) checkCopied(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := storecopy.Check(ctx, s.durable); err != nil && !errors.Is(err, store.ErrUnavailable) && ctx.Err() == nil {
		return fmt.Errorf("durable store: %w", err)
	}
	return nil
}
