package stores

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/certmagic"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/copyguard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fhirbase"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/storemirror"
)

// Bounds for revocation_max_lag. An available store sends a message every second.
const (
	minRevocationLag = 2 * time.Second
	maxRevocationLag = time.Hour
)

// Config configures the stores of an app.
type Config struct {
	// Issuer is the issuer to which the state in the store belongs. Required.
	Issuer string

	// StoreRaw is the JSON of the store module. Default: `file`.
	StoreRaw json.RawMessage `json:"store,omitempty" caddy:"namespace=fhir.stores inline_key=store"`
}

// Set contains the stores of an app.
type Set struct {
	// Store contains authorization codes, revocations and other short-lived state.
	Store store.Store

	// Durable contains the state that must survive a restart. It may be the same store as Store.
	Durable store.Store

	sharedStores    []*pooledShared
	starters        []Starter
	monitors        map[store.Store]*HealthMonitor
	durableWasEmpty bool // whether the durable store was empty when the issuer was assigned to it
}

// Load loads the app's store module. If gateways share the store, or if it is volatile, it contains all state. Otherwise, codes
// and other short-lived state are stored in memory.
func Load(ctx caddy.Context, c Config) (*Set, error) {
	if c.StoreRaw == nil {
		c.StoreRaw = json.RawMessage(`{"store":"file"}`)
	}
	s := &Set{monitors: map[store.Store]*HealthMonitor{}}
	var err error
	if s.Durable, err = s.load(ctx, &c); err != nil {
		return nil, err
	}
	s.Store = s.Durable
	if _, volatile := volatilityReason(s.Durable); volatile || isReplica(s.Durable) {
		return s, nil
	}
	c.StoreRaw = json.RawMessage(`{"store":"memory"}`)
	s.Store, err = s.load(ctx, &c)
	return s, err
}

func (s *Set) load(ctx caddy.Context, c *Config) (store.Store, error) {
	plugin, err := ctx.LoadModule(c, "StoreRaw")
	if err != nil {
		return nil, fmt.Errorf("loading the store: %w", err)
	}
	if file, ok := plugin.(FileStore); ok {
		if err := file.ResolvePath(defaultPath(ctx.Storage(), c.Issuer)); err != nil {
			return nil, err
		}
	}
	if shared, ok := plugin.(interface{ acquired() *pooledShared }); ok {
		return s.addShared(shared.acquired()), nil
	}
	localStore, ok := plugin.(store.Store)
	if !ok {
		return nil, fmt.Errorf("module %T is not a store", plugin)
	}
	if w, ok := plugin.(MonitorProvider); ok {
		s.monitors[localStore] = w.Monitor()
	} else {
		s.monitors[localStore] = NewLocalMonitor(fmt.Sprintf("%T", plugin), localStore)
	}
	if starter, ok := plugin.(Starter); ok {
		s.starters = append(s.starters, starter)
	}
	return localStore, nil
}

func (s *Set) addShared(pooled *pooledShared) store.Store {
	s.monitors[pooled.replica] = pooled.monitor
	if !slices.Contains(s.sharedStores, pooled) {
		s.sharedStores = append(s.sharedStores, pooled)
	}
	return pooled.replica
}

// defaultPath returns the default path of the store file.
func defaultPath(storage certmagic.Storage, issuer string) string {
	folder := caddy.AppDataDir()
	if files, ok := storage.(*certmagic.FileStorage); ok {
		folder = files.Path
	}
	return filepath.Join(folder, "fhir", fhirbase.StorageName(issuer)+".db")
}

// CheckDurability returns an error if the durable store loses its state on restart.
func (s *Set) CheckDurability() error {
	if _, is := volatilityReason(s.Durable); is {
		return ErrVolatile
	}
	return nil
}

// CheckLag returns an error if the revocation max lag is not valid for these stores.
func (s *Set) CheckLag(lag time.Duration) error {
	switch {
	case len(s.sharedStores) == 0 && lag != 0:
		return errors.New("revocation_max_lag applies only to a shared store, such as redis or postgres")
	case lag > 0 && (lag < minRevocationLag || lag > maxRevocationLag):
		return fmt.Errorf("revocation_max_lag %v must be between %v and %v", lag, minRevocationLag, maxRevocationLag)
	}
	return nil
}

// LogWarnings logs a warning if the durable store is volatile, or if gateways share the store but not their keys.
func (s *Set) LogWarnings(logger *slog.Logger, storage certmagic.Storage, keysInStore bool) {
	if why, is := volatilityReason(s.Durable); is {
		s.monitors[s.Durable].warnVolatile(logger, why)
	}
	if files, ok := storage.(*certmagic.FileStorage); ok && len(s.sharedStores) > 0 && !keysInStore {
		logger.Warn("gateways share the store, but signing keys and registered clients are in local files, so gateways reject each other's tokens; set store_key, share the folder, or configure a shared Caddy storage", "folder", files.Path)
	}
}

func isReplica(s store.Store) bool {
	_, ok := s.(*storemirror.Replica)
	return ok
}

// PrepareShutdown prepares the stores for the exit of the process.
func (s *Set) PrepareShutdown() {
	for _, starter := range s.starters {
		if stopper, ok := starter.(Stopper); ok {
			stopper.PrepareShutdown()
		}
	}
}

// Start opens the stores. maxLag is the configured lag: 0 means the default; a negative value means unlimited.
func (s *Set) Start(ctx context.Context, logger *slog.Logger, issuer string, maxLag time.Duration) error {
	for _, w := range s.monitors {
		w.logger.Store(logger)
	}
	for _, starter := range s.starters {
		if err := starter.Start(logger); err != nil {
			return err
		}
	}
	switch {
	case maxLag == 0:
		maxLag = storemirror.DefaultMaxLag
	case maxLag < 0:
		maxLag = storemirror.Unlimited
	}
	for _, shared := range s.sharedStores {
		if err := shared.start(logger.With("store", shared.name), issuer, maxLag); err != nil {
			return fmt.Errorf("store %s: %w", shared.name, err)
		}
	}
	if err := s.checkCopyComplete(ctx); err != nil {
		return err
	}
	s.recordVolatile()
	if checker, ok := s.Durable.(IssuerChecker); ok {
		var err error
		if s.durableWasEmpty, err = checker.CheckIssuer(ctx, issuer); err != nil {
			return err
		}
	}
	for _, w := range s.monitors {
		w.start()
	}
	return nil
}

// recordVolatile records which stores are volatile and, for the durable store, the consequence.
func (s *Set) recordVolatile() {
	for localStore, w := range s.monitors {
		why, is := volatilityReason(localStore)
		if localStore != s.Durable {
			why = ""
		}
		if is {
			w.recordVolatility(why)
		}
	}
}

// checkCopyComplete returns an error if the durable store contains an incomplete copy by fhir-store copy.
func (s *Set) checkCopyComplete(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := copyguard.CheckComplete(ctx, s.Durable); err != nil && !errors.Is(err, store.ErrUnavailable) && ctx.Err() == nil {
		return fmt.Errorf("durable store: %w", err)
	}
	return nil
}

// RecordDataLoss records a loss of data if the durable store is empty and existed returns true.
func (s *Set) RecordDataLoss(existed func() bool) {
	if s.durableWasEmpty && existed() {
		s.monitors[s.Durable].recordLossAtStart()
	}
}

// Outages returns the last outages of remote stores.
func (s *Set) Outages() (outages []store.Outage) {
	for _, shared := range s.sharedStores {
		outages = append(outages, shared.breaker.LastOutage())
	}
	return outages
}

// ClearRecoveredProblems clears the problems of stores that have recovered, without waiting for recoveryPeriod.
func (s *Set) ClearRecoveredProblems() {
	for _, w := range s.monitors {
		w.forceRecheck()
	}
}

// ParseModule returns a setter that parses the name of a store module and the module's block.
func ParseModule(to *json.RawMessage) option.Setter {
	return option.PluginModule(to, "fhir.stores", "store", checkStore)
}

func checkStore(name string) error {
	var names []string
	for _, module := range caddy.GetModules("fhir.stores") {
		names = append(names, module.ID.Name())
	}
	if !slices.Contains(names, name) {
		return fmt.Errorf("unknown store module fhir.stores.%s%s", name, option.DidYouMean(name, names))
	}
	return nil
}

// OpenDurable opens the durable store of the configuration at path for a process that uses it exclusively.
func (s *Set) OpenDurable(ctx context.Context, path string, create bool, wait time.Duration) (*Copy, error) {
	if _, is := volatilityReason(s.Durable); is {
		return nil, ErrVolatile
	}
	if source, ok := s.Durable.(CopySource); ok {
		return source.OpenForCopy(create, wait)
	}
	for _, shared := range s.sharedStores {
		if shared.replica == s.Durable {
			return shared.open(ctx, path)
		}
	}
	durable, ok := s.Durable.(store.CopyableStore)
	if !ok {
		return nil, fmt.Errorf("durable store of type %T cannot be copied", s.Durable)
	}
	return &Copy{CopyableStore: durable, Name: "the durable store of " + path}, nil
}

// open opens the store for a process that uses it exclusively.
func (s *pooledShared) open(ctx context.Context, path string) (*Copy, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := s.remote.Check(ctx); err != nil {
		return nil, err
	}
	remote, ok := s.remote.SharedStore.(store.CopyableStore)
	if !ok {
		return nil, fmt.Errorf("store %s cannot be copied", s.name)
	}
	return &Copy{CopyableStore: remote, Name: fmt.Sprintf("the %s store of %s", s.name, path), Identity: s.name}, nil
}
