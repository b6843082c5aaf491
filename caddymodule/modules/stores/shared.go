package stores

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/breaker"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/copyguard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/storemirror"
)

// MirroredKinds returns the kinds of entries in a shared store that a new subscriber needs completely.
func MirroredKinds() []string {
	return slices.Concat(store.MirroredKinds, slices.Sorted(maps.Keys(newBroadcasterByKind)))
}

// SubscribedKinds returns the kinds of entries for which a shared store announces changes: [MirroredKinds], for which existing
// entries are also sent, and [store.CachedKinds].
func SubscribedKinds() []string { return slices.Concat(MirroredKinds(), store.CachedKinds) }

// sharedStores contains remote stores and their replicas. They survive reloads.
var sharedStores = caddy.NewUsagePool()

// Remote is a store that several gateways share. Its module opens it.
type Remote struct {
	store.SharedStore

	// Check returns an error if the store cannot be used. An error that wraps [store.ErrUnavailable] is temporary; any other
	// error requires action by an operator.
	Check func(context.Context) error

	// Close closes the connections.
	Close func() error

	// ProbeSubscription returns an error if changes made by other gateways cannot be received. Default: not checked.
	ProbeSubscription func(context.Context) error

	// VolatilityReason returns why the store may lose data when it is restarted, or "". Default: the store loses no data.
	VolatilityReason func(context.Context) string

	// SeparateStoreHint explains how to configure a separate store for an issuer on the same server.
	SeparateStoreHint string

	// CountConnections returns the number of open connections and the number of connections in use.
	CountConnections func() (open, used int)
}

// Shared is the base of plugins for stores that several gateways share. A plugin embeds it and calls Open in Provision.
type Shared struct {
	*pooledShared `json:"-"`

	key string
}

func (s *Shared) acquired() *pooledShared { return s.pooledShared }

// Open reuses the store of the previous configuration if key, which represents all settings, is unchanged. Otherwise, it opens
// the store but does not connect yet.
func (s *Shared) Open(name, key string, open func(*slog.Logger) (*Remote, error)) error {
	pooled, _, err := sharedStores.LoadOrNew(name+" "+key, func() (caddy.Destructor, error) {
		return newPooledShared(name, open)
	})
	if err != nil {
		return err
	}
	s.key, s.pooledShared = name+" "+key, pooled.(*pooledShared)
	return nil
}

// Cleanup releases the store if Open was successful.
func (s *Shared) Cleanup() error {
	if s.pooledShared == nil {
		return nil
	}
	_, err := sharedStores.Delete(s.key)
	return err
}

// pooledShared is a remote store. Requests use the replica, which calls the store through the breaker.
type pooledShared struct {
	name         string // name of the module, for metrics
	remote       *Remote
	checkedStore *checkedStore
	breaker      *breaker.Breaker
	replica      *storemirror.Replica
	monitor      *HealthMonitor
	logger       latestLogger

	broadcasters map[string]Broadcaster

	followOnce sync.Once
	ctx        context.Context // context of the subscription
	stop       context.CancelFunc
	background sync.WaitGroup
}

func newPooledShared(name string, open func(*slog.Logger) (*Remote, error)) (*pooledShared, error) {
	s := &pooledShared{name: name}
	logger := slog.New(&s.logger)
	s.logger.Store(slog.Default())
	remote, err := open(logger)
	if err != nil {
		return nil, err
	}
	s.monitor = newStoreMonitor(name, s.probe)
	s.remote, s.checkedStore = remote, newCheckedStore(remote, logger)
	s.checkedStore.monitor = s.monitor
	s.monitor.sized, _ = remote.SharedStore.(sizedStore)
	s.breaker = breaker.New(s.checkedStore, logger, observeStore(name))
	s.broadcasters = newBroadcasters(s.breaker, logger)
	s.replica = storemirror.New(s.breaker, storemirror.Config{
		MirroredKinds: store.MirroredKinds, CachedKinds: store.CachedKinds, Notify: s.notifyBroadcasters, Logger: logger,
	})
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s, nil
}

// notifyBroadcasters passes an update from the store to the broadcasters.
func (s *pooledShared) notifyBroadcasters(u store.Update) {
	for _, f := range s.broadcasters {
		f.HandleUpdate(u)
	}
}

// probe checks the store and whether changes made by other gateways can be received. The breaker ignores failures of the second
// check, because calls still work.
func (s *pooledShared) probe(ctx context.Context) error {
	err := s.breaker.Probe(ctx)
	if err == nil && s.remote.ProbeSubscription != nil {
		err = s.remote.ProbeSubscription(ctx)
	}
	return err
}

// startTimeout is the maximum time that a start waits for an unresponsive store.
const startTimeout = 5 * time.Second

// start starts the subscription to the store. It returns an error if the store cannot be used. If the store is unavailable,
// there is no error: the gateway handles requests that do not need the store, and other requests when the store is available.
func (s *pooledShared) start(logger *slog.Logger, issuer string, maxLag time.Duration) error {
	ctx, cancel := context.WithTimeout(s.ctx, startTimeout)
	defer cancel()
	err := s.checkedStore.checkAtStart(ctx, issuer)
	if err != nil && !errors.Is(err, store.ErrUnavailable) {
		return err
	}
	s.logger.Store(logger)
	s.replica.SetMaxLag(maxLag)
	if err != nil {
		logger.Warn("store unavailable at startup; starting anyway", "error", err)
	}
	s.followOnce.Do(func() {
		s.background.Go(func() { s.replica.Run(s.ctx) })
		s.background.Go(func() { copyguard.Announce(s.ctx, s.breaker) })
	})
	return nil
}

// Destruct ends the subscription and closes the store.
func (s *pooledShared) Destruct() error {
	s.monitor.Stop()
	s.stop()
	s.background.Wait()
	return s.remote.Close()
}

// latestLogger is a handler that forwards records to the logger of the latest configuration, for objects that survive reloads.
type latestLogger struct{ atomic.Pointer[slog.Logger] }

// Enabled implements [slog.Handler].
func (l *latestLogger) Enabled(ctx context.Context, level slog.Level) bool {
	return l.Load().Enabled(ctx, level)
}

// Handle implements [slog.Handler].
func (l *latestLogger) Handle(ctx context.Context, r slog.Record) error {
	return l.Load().Handler().Handle(ctx, r)
}

// WithAttrs implements [slog.Handler].
func (l *latestLogger) WithAttrs(attrs []slog.Attr) slog.Handler {
	return l.Load().Handler().WithAttrs(attrs)
}

// WithGroup implements [slog.Handler].
func (l *latestLogger) WithGroup(name string) slog.Handler { return l.Load().Handler().WithGroup(name) }

var (
	_ caddy.CleanerUpper = (*Shared)(nil)
	_ caddy.Destructor   = (*pooledShared)(nil)
	_ slog.Handler       = (*latestLogger)(nil)
)

// A Broadcaster broadcasts events of one kind to other gateways with the same store, by entries of a separate kind in it.
type Broadcaster interface {
	// HandleUpdate is called with each update from the store. It must not block.
	HandleUpdate(u store.Update)
}

// NewBroadcaster returns a broadcaster for a store. It lives as long as the store's connections.
type NewBroadcaster func(shared store.Store, logger *slog.Logger) Broadcaster

// newBroadcasterByKind contains the constructors of broadcasters by kind.
var newBroadcasterByKind = map[string]NewBroadcaster{}

// RegisterBroadcaster registers the constructor of a kind's broadcaster, which is created for each shared store. It must be
// called during package initialization.
func RegisterBroadcaster(kind string, newBroadcaster NewBroadcaster) {
	newBroadcasterByKind[kind] = newBroadcaster
}

func newBroadcasters(shared store.Store, logger *slog.Logger) map[string]Broadcaster {
	broadcasters := make(map[string]Broadcaster, len(newBroadcasterByKind))
	for kind, newBroadcaster := range newBroadcasterByKind {
		broadcasters[kind] = newBroadcaster(shared, logger)
	}
	return broadcasters
}

// Broadcaster returns the first shared store's broadcaster for the given kind of event, or nil if there is no shared store.
func (s *Set) Broadcaster(kind string) Broadcaster {
	if len(s.sharedStores) == 0 {
		return nil
	}
	return s.sharedStores[0].broadcasters[kind]
}
