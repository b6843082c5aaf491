// Package storemirror keeps a local copy of the frequently read entries of a store that several gateways
// share, so that most requests need no round trip.
//
// The store announces changes of some kinds of keys. For mirrored kinds, the replica contains all
// entries, so it can also detect missing entries. For cached kinds, it keeps recently read entries
// until a change is announced. Both are used only while the replica has heard from the store within the
// maximum lag; after that, it reads each entry from the store.
//
// An entry of the replica may be outdated by the maximum lag, but always reflects changes made by this
// process. Use [Replica.Do] for reads that must be current.
package storemirror

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/boundedcache"
)

// Defaults of [Config].
const (
	DefaultMaxLag      = 5 * time.Second
	DefaultMaxMirrored = 500_000  // about 200 bytes each
	DefaultMaxCached   = 64 << 20 // bytes
)

// Unlimited is a maximum lag that is never exceeded.
const Unlimited time.Duration = -1

// Config is the configuration of a [Replica].
type Config struct {
	Mirrored []string // kinds with all entries replicated; see [store.KindOf]
	Cached   []string // kinds with entries cached when read

	MaxMirrored int   // maximum number of entries; further entries are read from the store. Default: [DefaultMaxMirrored].
	MaxCached   int64 // bytes. Default: [DefaultMaxCached].

	// Notify also receives each update, after the replica. It must not block. Default: nil.
	Notify func(store.Update)

	Logger *slog.Logger // receives the start and end of failures to follow the store
}

// Replica is a [store.Store] in front of a shared store, for a process that reads more than it changes.
// It serves [Replica.Get] for followed kinds itself, and delegates all other operations to the store.
// Unless [Replica.Run] is running, it delegates every operation.
type Replica struct {
	store.Shared

	mirrored, cached []string // prefixes of keys
	began            time.Time
	tell             func(store.Update)
	fresh            atomic.Int64 // when the replica stops being current, in nanoseconds since began
	logger           *slog.Logger

	mu      sync.RWMutex
	heard   int64         // time of the last message, in nanoseconds since began
	maxLag  time.Duration // negative: unlimited
	mirror  mirror
	changed changed
	asks    map[string]*ask // by key

	kept boundedcache.Cache[string, keptAnswer] // changes only under mu
}

// never is the value of heard before the first update.
const never = math.MinInt64 / 2

// New returns an empty replica of a store, with the maximum lag [DefaultMaxLag].
func New(s store.Shared, c Config) *Replica {
	r := &Replica{
		Shared: s, mirrored: prefixes(c.Mirrored), cached: prefixes(c.Cached), began: time.Now(), tell: c.Notify, logger: c.Logger,
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

// SetMaxLag sets how long the replica is used without messages from the store, or [Unlimited].
func (r *Replica) SetMaxLag(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.maxLag = d
	r.refresh()
}

// refresh updates fresh from heard and maxLag. It requires the lock.
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

// Lag returns the time since the store was asked for the latest changes of the replica, or since the
// replica was created if it has received none.
func (r *Replica) Lag() time.Duration {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return time.Duration(r.now() - max(r.heard, 0))
}

// IsCurrent reports whether the replica serves entries itself: it has heard from the store within the
// maximum lag.
func (r *Replica) IsCurrent() bool { return r.now() <= r.fresh.Load() }

// now returns the time in nanoseconds since the replica was created. It advances while the process is
// suspended, because updates received after that must not be considered fresh.
func (r *Replica) now() int64 { return int64(time.Since(r.began)) }

// Size returns the number of mirrored entries, including expired ones, and the limit.
func (r *Replica) Size() (entries, bound int) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return len(r.mirror.entries), r.mirror.max
}

// Get implements [store.Store]. If the store must be asked and does not respond, the error is
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
	return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(key, prefix) })
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

// keptAnswer is the cached result of a Get.
type keptAnswer struct {
	value []byte // nil: no entry
	until int64
}

func (k keptAnswer) answer() ([]byte, error) {
	if k.value == nil {
		return nil, store.ErrNotFound
	}
	return bytes.Clone(k.value), nil
}

// mirror contains all entries of some kinds, unless they exceed max. Times are in nanoseconds since the
// replica was created.
type mirror struct {
	entries map[string]entry
	max     int // entries
	whole   bool
	missing int64 // until then, entries that did not fit may exist
}

type entry struct {
	value   string
	expires int64
}

// get returns an entry. known reports whether the result is reliable: no missing entry could contradict it.
func (m *mirror) get(key string, now int64) (e entry, found, known bool) {
	e, found = m.entries[key]
	if found && now < e.expires {
		return e, true, m.whole
	}
	return entry{}, false, m.whole && now >= m.missing
}

// reset empties the mirror before all entries are added.
func (m *mirror) reset(n int) {
	m.entries, m.missing, m.whole = make(map[string]entry, min(n, m.max)), 0, true
}

// put applies a change. If an entry does not fit, it records that an entry is missing.
func (m *mirror) put(c store.Change, made time.Time, now int64) {
	expires := int64(c.Expires.Sub(made))
	if c.Value == nil || expires <= now {
		delete(m.entries, c.Key)
		return
	}
	m.sweep(sweptPerChange, now)
	if _, found := m.entries[c.Key]; !found && len(m.entries) >= m.max {
		m.missing = max(m.missing, expires)
		return
	}
	m.entries[c.Key] = entry{string(c.Value), expires}
}

// Number of entries checked for expiry. In the long run, fewer than one in sweptPerChange is expired.
const (
	sweptPerChange = 8
	sweptPerUpdate = 256
)

// sweep checks n arbitrary entries, and removes the expired ones.
func (m *mirror) sweep(n int, now int64) {
	for key, e := range m.entries {
		if n--; n < 0 {
			return
		}
		if e.expires <= now {
			delete(m.entries, key)
		}
	}
}

const (
	// keepFor is the cache lifetime of a result, because the store does not announce expiry.
	keepFor = time.Minute

	// maxShared is the maximum age of a pending Get to share its result with other callers.
	maxShared = time.Second

	// answerOverhead is the memory of a cached result in addition to its key and value, in bytes.
	answerOverhead = 200
)

// An ask is a pending Get, shared by all callers that request the key in the meantime.
type ask struct {
	began int64
	stale bool // the entry has changed since the Get started; guarded by Replica.mu
	done  chan struct{}

	value []byte // valid once done is closed
	err   error
}

func isUnavailable(err error) bool { return errors.Is(err, store.ErrUnavailable) }

// ask reads an entry from the store. If keep is set, the result is cached.
func (r *Replica) ask(ctx context.Context, key string, keep bool) ([]byte, error) {
	a, mine := r.askFor(key)
	if mine {
		// Other callers wait for the result too, so it must not be canceled with this request.
		a.value, a.err = r.Shared.Get(context.WithoutCancel(ctx), key)
		r.answered(key, a, keep)
		return bytes.Clone(a.value), a.err
	}
	select {
	case <-a.done:
		return bytes.Clone(a.value), a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// askFor returns the pending Get for a key, or a new one that the caller must execute.
func (r *Replica) askFor(key string) (a *ask, mine bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	if a := r.asks[key]; a != nil && now-a.began <= int64(maxShared) {
		return a, false
	}
	r.invalidate(key)
	a = &ask{began: now, done: make(chan struct{})}
	r.asks[key] = a
	return a, true
}

// answered completes a Get. The result of a Get that started before a change is not cached, because the
// change has already been announced.
func (r *Replica) answered(key string, a *ask, keep bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer close(a.done)
	if a.stale {
		return
	}
	delete(r.asks, key)
	if keep && (a.err == nil || errors.Is(a.err, store.ErrNotFound)) {
		r.kept.Put(key, keptAnswer{a.value, r.now() + int64(keepFor)}, int64(len(key)+len(a.value)+answerOverhead))
	}
}

// forget removes the cached result for a key, also of a pending Get. It requires the lock.
func (r *Replica) forget(key string) {
	r.kept.Delete(key)
	r.invalidate(key)
}

// invalidate prevents the pending Get for a key from being shared and its result from being cached. It
// requires the lock.
func (r *Replica) invalidate(key string) {
	if a := r.asks[key]; a != nil {
		a.stale = true
		delete(r.asks, key)
	}
}

// forgetAll is like forget, but for all keys. It requires the lock.
func (r *Replica) forgetAll() {
	r.kept.DeleteFunc(func(string, keptAnswer) bool { return true })
	for _, a := range r.asks {
		a.stale = true
	}
	clear(r.asks)
}

// maxChanged is the maximum number of keys in changed, which is reached only if following fails.
const maxChanged = 10_000

// changed contains the mirrored keys that this process changed. They are read from the store until it
// has announced the change. The replica does not apply the change itself, because a later change by
// another process may already have been announced.
type changed struct {
	at map[string]int64 // time of the store's response, by key

	any    bool // more keys than fit into at
	latest int64
}

func (c *changed) has(key string) bool {
	if len(c.at) == 0 { // the usual case
		return c.any
	}
	_, found := c.at[key]
	return found || c.any
}

func (c *changed) add(key string, now int64) {
	if c.latest = now; len(c.at) >= maxChanged {
		c.at, c.any = nil, true
		return
	}
	if c.at == nil {
		c.at = map[string]int64{}
	}
	c.at[key] = now
}

// announced removes the changes that the store has announced by the time heard.
func (c *changed) announced(heard int64) {
	for key, at := range c.at {
		if at < heard {
			delete(c.at, key)
		}
	}
	if c.latest < heard {
		c.any = false
	}
}

// Put implements [store.Store].
func (r *Replica) Put(ctx context.Context, key string, value []byte, ttl time.Duration) error {
	return r.made(key, r.Shared.Put(ctx, key, value, ttl))
}

// Add implements [store.Store].
func (r *Replica) Add(ctx context.Context, key string, value []byte, ttl time.Duration) error {
	return r.made(key, r.Shared.Add(ctx, key, value, ttl))
}

// Swap implements [store.Store].
func (r *Replica) Swap(ctx context.Context, key string, old, value []byte, ttl time.Duration) error {
	return r.made(key, r.Shared.Swap(ctx, key, old, value, ttl))
}

// Take implements [store.Store].
func (r *Replica) Take(ctx context.Context, key string) ([]byte, error) {
	value, err := r.Shared.Take(ctx, key)
	return value, r.made(key, err)
}

// Delete implements [store.Store].
func (r *Replica) Delete(ctx context.Context, key string) error {
	return r.made(key, r.Shared.Delete(ctx, key))
}

// Append implements [store.Store].
func (r *Replica) Append(ctx context.Context, key string, item []byte, most int, ttl time.Duration) error {
	return r.made(key, r.Shared.Append(ctx, key, item, most, ttl))
}

// Do implements [store.Store]. It always uses the store, even for Get.
func (r *Replica) Do(ctx context.Context, calls ...*store.Call) error {
	err := r.Shared.Do(ctx, calls...)
	for _, c := range calls {
		if c.Op != store.Get {
			_ = r.made(c.Key, err)
		}
	}
	return err
}

// made forgets the key that a call has changed, and returns the call's error. If a call failed although
// its change was made, the change is announced like those of other processes.
func (r *Replica) made(key string, err error) error {
	mirrored := hasAnyPrefix(key, r.mirrored)
	if err != nil || !mirrored && !hasAnyPrefix(key, r.cached) {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.forget(key); mirrored {
		r.changed.add(key, r.now())
	}
	return nil
}

// Pauses of Run before it follows the store again: doubled after each failure, and reset once following
// has worked for steadyAfter. Each start may read all entries.
const (
	minPause    = 100 * time.Millisecond
	maxPause    = 2 * time.Second
	steadyAfter = 10 * time.Second
)

// Run follows the store until ctx is canceled, and retries after failures.
func (r *Replica) Run(ctx context.Context) {
	var lost time.Time // zero: following
	pause := minPause
	for ctx.Err() == nil {
		began := time.Now()
		err := r.Subscribe(ctx, func(u store.Update) {
			r.hear(u)
			r.tell(u)
			if !lost.IsZero() {
				r.logger.InfoContext(ctx, "changes of other gateways are heard again", "after", time.Since(lost).Round(time.Millisecond))
				lost = time.Time{}
			}
		})
		if ctx.Err() != nil {
			return
		}
		if lost.IsZero() && !isUnavailable(err) { // the breaker logs outages
			lost = time.Now()
			r.logger.WarnContext(ctx, "changes of other gateways are not heard, trying again", "error", err)
		}
		if time.Since(began) > steadyAfter {
			pause = minPause
		}
		wait(ctx, pause/2+rand.N(pause/2)) // randomized, so that gateways do not reconnect simultaneously
		pause = min(2*pause, maxPause)
	}
}

func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// hear applies the changes that the store announces.
func (r *Replica) hear(u store.Update) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now, heard := r.now(), int64(u.QueriedAt.Sub(r.began))
	if u.IsComplete {
		r.mirror.reset(len(u.Changes))
		r.forgetAll()
	}
	for _, c := range u.Changes {
		if hasAnyPrefix(c.Key, r.mirrored) {
			r.mirror.put(c, r.began, now)
		}
		r.forget(c.Key)
	}
	r.mirror.sweep(sweptPerUpdate, now)
	r.changed.announced(heard)
	if r.mirror.whole && heard > r.heard {
		r.heard = heard
		r.refresh()
	}
}
