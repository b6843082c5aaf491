package replica

import (
	"bytes"
	"context"
	"log/slog"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/boundedcache"
)

// Defaults of a [Config].
const (
	DefaultMaxLag      = 5 * time.Second
	DefaultMaxMirrored = 500_000  // about 200 bytes each
	DefaultMaxCached   = 64 << 20 // bytes
)

// Unlimited is a maximum lag that is never exceeded.
const Unlimited time.Duration = -1

// Config says what a [Replica] holds.
type Config struct {
	Mirrored []string // the kinds of which it holds all entries; see [store.KindOf]
	Cached   []string // the kinds of which it keeps what was read

	MaxMirrored int   // entries; for what does not fit, the store is asked. Default: [DefaultMaxMirrored].
	MaxCached   int64 // bytes. Default: [DefaultMaxCached].

	// Tell gets each update too, after the replica, for what else the store follows. It must not
	// wait. Default: nil, nobody does.
	Tell func(store.Update)

	Logger *slog.Logger // gets when following fails, and when it goes on
}

// Replica is a [store.Store] in front of a shared one, for a process that reads more than it
// changes. It answers [Replica.Get] of followed kinds itself, and passes on everything else.
// [Replica.Run] must run, or it asks the store for everything.
type Replica struct {
	store.Shared

	mirrored, cached []string // prefixes of keys
	began            time.Time
	tell             func(store.Update)
	fresh            atomic.Int64 // until when the replica answers by itself, in nanoseconds since began
	logger           *slog.Logger

	mu      sync.RWMutex
	heard   int64         // nanoseconds since began
	maxLag  time.Duration // negative: unlimited
	mirror  mirror
	changed changed
	asks    map[string]*ask // by key

	kept boundedcache.Cache[string, keptAnswer] // changes only under mu
}

// never is when a replica that has not heard from the store has last heard.
const never = math.MinInt64 / 2

// New returns an empty replica of a store, with the maximum lag [DefaultMaxLag].
func New(s store.Shared, c Config) *Replica {
	r := &Replica{
		Shared: s, mirrored: prefixes(c.Mirrored), cached: prefixes(c.Cached), began: time.Now(), tell: c.Tell, logger: c.Logger,
		heard: never, mirror: mirror{max: c.MaxMirrored}, asks: map[string]*ask{},
	}
	if c.MaxMirrored <= 0 {
		r.mirror.max = DefaultMaxMirrored
	}
	if r.kept.MaxCost = c.MaxCached; c.MaxCached <= 0 {
		r.kept.MaxCost = DefaultMaxCached
	}
	if r.tell == nil {
		r.tell = func(store.Update) {}
	}
	r.SetMaxLag(DefaultMaxLag)
	return r
}

func prefixes(kinds []string) (all []string) {
	for _, kind := range kinds {
		all = append(all, kind+":")
	}
	return all
}

// SetMaxLag changes for how long the replica answers without hearing from the store, or
// [Unlimited].
func (r *Replica) SetMaxLag(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.maxLag = d
	r.refresh()
}

// refresh sets until when the replica answers by itself. It requires the lock.
func (r *Replica) refresh() {
	switch {
	case r.heard == never:
		r.fresh.Store(never)
	case r.maxLag < 0:
		r.fresh.Store(math.MaxInt64)
	default:
		r.fresh.Store(r.heard + int64(r.maxLag))
	}
}

// Lag returns how long ago the store was asked for the changes that the replica has; since the
// replica was made if it has none yet.
func (r *Replica) Lag() time.Duration {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return time.Duration(r.now() - max(r.heard, 0))
}

// IsCurrent reports whether the replica answers by itself: it has heard from the store, and
// within the maximum lag.
func (r *Replica) IsCurrent() bool { return r.now() <= r.fresh.Load() }

// now is the time in nanoseconds since the replica was made. It counts while the process is
// stopped: what arrives after that must not be taken for fresh.
func (r *Replica) now() int64 { return int64(time.Since(r.began)) }

// Size returns the number of mirrored entries, including expired ones, and the bound.
func (r *Replica) Size() (entries, bound int) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return len(r.mirror.entries), r.mirror.max
}

// Get implements [store.Store]. If the store must be asked and does not answer, the error is
// [store.ErrUnavailable].
func (r *Replica) Get(ctx context.Context, key string) ([]byte, error) {
	mirrored := hasAnyPrefix(key, r.mirrored)
	if !mirrored && !hasAnyPrefix(key, r.cached) {
		return r.Shared.Get(ctx, key)
	}
	now := r.now()
	if now > r.fresh.Load() {
		return r.ask(ctx, key, !mirrored)
	}
	if mirrored {
		return r.getMirrored(ctx, key, now)
	}
	return r.getCached(ctx, key, now)
}

func hasAnyPrefix(key string, prefixes []string) bool {
	for _, prefix := range prefixes {
		if strings.HasPrefix(key, prefix) {
			return true
		}
	}
	return false
}

func (r *Replica) getMirrored(ctx context.Context, key string, now int64) ([]byte, error) {
	r.mu.RLock()
	e, found, known := r.mirror.get(key, now)
	known = known && !r.changed.has(key)
	r.mu.RUnlock()
	switch {
	case !known:
		return r.ask(ctx, key, false)
	case !found:
		return nil, store.ErrNotFound
	}
	return []byte(e.value), nil
}

func (r *Replica) getCached(ctx context.Context, key string, now int64) ([]byte, error) {
	known, found := r.kept.Get(key)
	if found && now < known.until {
		return known.answer()
	}
	value, err := r.ask(ctx, key, true)
	if found && isUnavailable(err) && r.IsCurrent() { // no change was announced
		return known.answer()
	}
	return value, err
}

// keptAnswer is what the store answered to a Get.
type keptAnswer struct {
	value []byte // nil: there was none
	until int64
}

func (k keptAnswer) answer() ([]byte, error) {
	if k.value == nil {
		return nil, store.ErrNotFound
	}
	return bytes.Clone(k.value), nil
}
