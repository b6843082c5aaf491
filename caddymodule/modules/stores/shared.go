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
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/replica"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/storemark"
)

// MirroredKinds are the kinds of entries of which a new follower of a store elsewhere needs all there are.
func MirroredKinds() []string {
	return slices.Concat(store.MirroredKinds, slices.Sorted(maps.Keys(followers)))
}

// FollowedKinds are the kinds of entries whose changes a store elsewhere announces: beside [MirroredKinds] those of which
// a follower needs changes alone.
func FollowedKinds() []string { return slices.Concat(MirroredKinds(), store.CachedKinds) }

// sharedStores keeps stores elsewhere over reloads, with what this process knows of them.
var sharedStores = caddy.NewUsagePool()

// Remote is a store that several gateways share, as its module opens it.
type Remote struct {
	store.Shared

	// Check says why the store cannot be used. An error that is [store.ErrUnavailable] may pass; any other, somebody must
	// set right.
	Check func(context.Context) error

	// Close ends its connections.
	Close func() error

	// TryListening tries whether changes of other gateways can be read. Default: it is not tried.
	TryListening func(context.Context) error

	// Volatile says why the store does not keep everything over its own restart; empty if it does. Default: it does.
	Volatile func(context.Context) string

	// Own says how to give an issuer a store of its own at the same server.
	Own string

	// Connections returns how many there are, and how many of them are in use.
	Connections func() (open, used int)
}

// Shared is what the guest modules have in common whose store several gateways share. They embed it, and call Use in
// Provision.
type Shared struct {
	*pooledShared `json:"-"`

	key string
}

func (s *Shared) pooled() *pooledShared { return s.pooledShared }

// Use takes the store over from the previous configuration if the key, of all its settings, is the same. Else it is opened,
// which makes no connection yet.
func (s *Shared) Use(name, key string, open func(*slog.Logger) (*Remote, error)) error {
	pooled, _, err := sharedStores.LoadOrNew(name+" "+key, func() (caddy.Destructor, error) {
		return newPooledShared(name, open)
	})
	if err != nil {
		return err
	}
	s.key, s.pooledShared = name+" "+key, pooled.(*pooledShared)
	return nil
}

// Cleanup releases the store, if Use got that far.
func (s *Shared) Cleanup() error {
	if s.pooledShared == nil {
		return nil
	}
	_, err := sharedStores.Delete(s.key)
	return err
}

// pooledShared is a store elsewhere. Requests use the replica, which asks the store through the breaker.
type pooledShared struct {
	name    string // of the module, in metrics
	remote  *Remote
	checked *checkedStore
	breaker *breaker.Breaker
	replica *replica.Replica
	watch   *Watch
	logger  latestLogger

	followers map[string]Follower

	follow sync.Once
	ctx    context.Context // of following
	end    context.CancelFunc
	ended  sync.WaitGroup
}

func newPooledShared(name string, open func(*slog.Logger) (*Remote, error)) (*pooledShared, error) {
	s := &pooledShared{name: name}
	logger := slog.New(&s.logger)
	s.logger.Store(slog.Default())
	remote, err := open(logger)
	if err != nil {
		return nil, err
	}
	s.watch = newStoreWatch(name, s.try)
	s.remote, s.checked = remote, newCheckedStore(remote, logger)
	s.checked.watch = s.watch
	s.watch.sized, _ = remote.Shared.(sizedStore)
	s.breaker = breaker.New(s.checked, logger, observeStore(name))
	s.followers = newFollowers(s.breaker, logger)
	s.replica = replica.New(s.breaker, replica.Config{
		Mirrored: store.MirroredKinds, Cached: store.CachedKinds, Tell: s.tellFollowers, Logger: logger,
	})
	s.ctx, s.end = context.WithCancel(context.Background())
	return s, nil
}

// tellFollowers tells modules what the store tells.
func (s *pooledShared) tellFollowers(u store.Update) {
	for _, f := range s.followers {
		f.Hear(u)
	}
}

// try tries the store, and whether other gateways can be heard. If only they cannot, the breaker does not count it: the store
// is still asked.
func (s *pooledShared) try(ctx context.Context) error {
	err := s.breaker.Try(ctx)
	if err == nil && s.remote.TryListening != nil {
		err = s.remote.TryListening(ctx)
	}
	return err
}

// startTimeout is how long a start waits for a store that does not answer.
const startTimeout = 5 * time.Second

// start begins to follow the store. It fails if the store cannot be used as it is. If it cannot be reached, the gateway
// serves what needs no store, and the rest once it can.
func (s *pooledShared) start(logger *slog.Logger, issuer string, maxLag time.Duration) error {
	ctx, cancel := context.WithTimeout(s.ctx, startTimeout)
	defer cancel()
	err := s.checked.begin(ctx, issuer)
	if err != nil && !errors.Is(err, store.ErrUnavailable) {
		return err
	}
	s.logger.Store(logger)
	s.replica.SetMaxLag(maxLag)
	if err != nil {
		logger.Warn("starting without the store, which cannot be reached yet", "error", err)
	}
	s.follow.Do(func() {
		s.ended.Go(func() { s.replica.Run(s.ctx) })
		s.ended.Go(func() { storemark.Announce(s.ctx, s.breaker) })
	})
	return nil
}

// Destruct ends following, and closes the store.
func (s *pooledShared) Destruct() error {
	s.watch.Stop()
	s.end()
	s.ended.Wait()
	return s.remote.Close()
}

// latestLogger is the handler of the logger of the configuration that started last, for what lives longer.
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

// A Follower is a part of a gateway that tells the same part of other gateways something, by entries of a kind of its own in
// a store that they share.
type Follower interface {
	// Hear is told what the store tells. It does not wait.
	Hear(u store.Update)
}

// NewFollower makes the follower of a store, which lives as long as the store's connections do.
type NewFollower func(shared store.Store, logger *slog.Logger) Follower

// followers are those of each kind.
var followers = map[string]NewFollower{}

// Follow lets each store that several gateways share have a follower of a kind. It is for a package's initialization.
func Follow(kind string, newFollower NewFollower) { followers[kind] = newFollower }

func newFollowers(shared store.Store, logger *slog.Logger) map[string]Follower {
	made := make(map[string]Follower, len(followers))
	for kind, newFollower := range followers {
		made[kind] = newFollower(shared, logger)
	}
	return made
}

// Follower returns that of a kind, of the first store that several gateways share; nil if there is none.
func (s *Set) Follower(kind string) Follower {
	if len(s.shared) == 0 {
		return nil
	}
	return s.shared[0].followers[kind]
}
