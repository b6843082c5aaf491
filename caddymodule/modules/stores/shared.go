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

// MirroredKinds are the kinds of entries of a shared store that a new follower needs in full.
func MirroredKinds() []string {
	return slices.Concat(store.MirroredKinds, slices.Sorted(maps.Keys(newBroadcasterByKind)))
}

// SubscribedKinds are the kinds of entries that a shared store announces when they change: [MirroredKinds], and
// [store.CachedKinds] without their existing entries.
func SubscribedKinds() []string { return slices.Concat(MirroredKinds(), store.CachedKinds) }

// sharedStores keeps remote stores with their replicas across reloads.
var sharedStores = caddy.NewUsagePool()

// Remote is a store that several gateways share, as opened by its module.
type Remote struct {
	store.SharedStore

	// Check returns the reason why the store cannot be used. An error that wraps [store.ErrUnavailable] is temporary; any other
	// requires an operator.
	Check func(context.Context) error

	// Close closes the connections.
	Close func() error

	// ProbeSubscription checks whether changes of other gateways can be received. Default: not checked.
	ProbeSubscription func(context.Context) error

	// VolatilityReason returns the reason why the store may lose data on its own restart; empty if it does not. Default: it does not.
	VolatilityReason func(context.Context) string

	// SeparateStoreHint describes how to give an issuer a separate store on the same server.
	SeparateStoreHint string

	// CountConnections returns the number of connections, and how many of them are in use.
	CountConnections func() (open, used int)
}

// Shared is the base of guest modules for stores that several gateways share. They embed it, and call Open in Provision.
type Shared struct {
	*pooledShared `json:"-"`

	key string
}

func (s *Shared) acquired() *pooledShared { return s.pooledShared }

// Open takes the store over from the previous configuration if the key, which covers all settings, is unchanged. Otherwise it
// opens the store, without connecting yet.
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

// Cleanup releases the store, if Open was successful.
func (s *Shared) Cleanup() error {
	if s.pooledShared == nil {
		return nil
	}
	_, err := sharedStores.Delete(s.key)
	return err
}

// pooledShared is a remote store. Requests use the replica, which queries the store through the breaker.
type pooledShared struct {
	name         string // of the module, for metrics
	remote       *Remote
	checkedStore *checkedStore
	breaker      *breaker.Breaker
	replica      *storemirror.Replica
	watch        *Watch
	logger       latestLogger

	broadcasters map[string]Broadcaster

	followOnce sync.Once
	ctx        context.Context // context of the follower
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
	s.watch = newStoreWatch(name, s.probe)
	s.remote, s.checkedStore = remote, newCheckedStore(remote, logger)
	s.checkedStore.watch = s.watch
	s.watch.sized, _ = remote.SharedStore.(sizedStore)
	s.breaker = breaker.New(s.checkedStore, logger, observeStore(name))
	s.broadcasters = newBroadcasters(s.breaker, logger)
	s.replica = storemirror.New(s.breaker, storemirror.Config{
		MirroredKinds: store.MirroredKinds, CachedKinds: store.CachedKinds, Notify: s.notifyBroadcasters, Logger: logger,
	})
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s, nil
}

// notifyBroadcasters forwards the store's updates to the followers.
func (s *pooledShared) notifyBroadcasters(u store.Update) {
	for _, f := range s.broadcasters {
		f.HandleUpdate(u)
	}
}

// probe checks the store, and whether changes of other gateways can be received. The breaker ignores a failure of the latter,
// because queries still work.
func (s *pooledShared) probe(ctx context.Context) error {
	err := s.breaker.Probe(ctx)
	if err == nil && s.remote.ProbeSubscription != nil {
		err = s.remote.ProbeSubscription(ctx)
	}
	return err
}

// startTimeout is the maximum time that a start waits for a store that does not respond.
const startTimeout = 5 * time.Second

// start starts following the store. It fails if the store cannot be used. If the store is unavailable, the gateway serves
// requests that need no store, and the others once the store is available.
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

// Destruct stops following, and closes the store.
func (s *pooledShared) Destruct() error {
	s.watch.Stop()
	s.stop()
	s.background.Wait()
	return s.remote.Close()
}

// latestLogger is a handler that forwards to the logger of the latest configuration, for objects that outlive a configuration.
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

// A Broadcaster broadcasts events of a kind to the other gateways with the same store, by entries of its own kind in that store.
type Broadcaster interface {
	// HandleUpdate is called with each update of the store. It must not block.
	HandleUpdate(u store.Update)
}

// NewBroadcaster returns the follower of a store, which lives as long as the store's connections.
type NewBroadcaster func(shared store.Store, logger *slog.Logger) Broadcaster

// newBroadcasterByKind are the constructors by kind.
var newBroadcasterByKind = map[string]NewBroadcaster{}

// RegisterBroadcaster registers the follower of a kind for each shared store. It must be called during package initialization.
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

// Broadcaster returns the follower of a kind for the first shared store; nil without a shared store.
func (s *Set) Broadcaster(kind string) Broadcaster {
	if len(s.sharedStores) == 0 {
		return nil
	}
	return s.sharedStores[0].broadcasters[kind]
}
