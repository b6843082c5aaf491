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
	MirroredKinds []string // kinds with all entries replicated; see [store.KindOf]
	CachedKinds   []string // kinds with entries cached when read

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
	store.SharedStore

	mirroredPrefixes, cachedPrefixes []string // prefixes of keys
	createdAt                        time.Time
	notify                           func(store.Update)
	currentUntil                     atomic.Int64 // when the replica stops being current, in nanoseconds since createdAt
	logger                           *slog.Logger

	mu          sync.RWMutex
	lastMessage int64         // time of the last message, in nanoseconds since createdAt
	maxLag      time.Duration // negative: unlimited
	mirror      mirror
	changed     changedKeys
	pendingGets map[string]*pendingGet // by key

	cache boundedcache.Cache[string, cachedResult] // changes only under mu
}

// noMessage is the value of heard before the first update.
const noMessage = math.MinInt64 / 2

// New returns an empty replica of a store, with the maximum lag [DefaultMaxLag].
func New(s store.SharedStore, c Config) *Replica {
	r := &Replica{
		SharedStore: s, mirroredPrefixes: keyPrefixes(c.MirroredKinds), cachedPrefixes: keyPrefixes(c.CachedKinds), createdAt: time.Now(), notify: c.Notify, logger: c.Logger,
		lastMessage: noMessage, mirror: mirror{max: c.MaxMirrored}, pendingGets: map[string]*pendingGet{},
	}
	if c.MaxMirrored <= 0 {
		r.mirror.max = DefaultMaxMirrored
	}
	if r.cache.MaxCost = c.MaxCached; c.MaxCached <= 0 {
		r.cache.MaxCost = DefaultMaxCached
	}
	if r.notify == nil {
		r.notify = func(store.Update) {}
	}
	r.SetMaxLag(DefaultMaxLag)
	return r
}

func keyPrefixes(kinds []string) (all []string) {
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
	r.updateCurrentUntil()
}

// updateCurrentUntil updates currentUntil from lastMessage and maxLag. It requires the lock.
func (r *Replica) updateCurrentUntil() {
	switch {
	case r.lastMessage == noMessage:
		r.currentUntil.Store(noMessage)
	case r.maxLag < 0:
		r.currentUntil.Store(math.MaxInt64)
	default:
		r.currentUntil.Store(r.lastMessage + int64(r.maxLag))
	}
}

// Lag returns the time since the store was asked for the latest changes of the replica, or since the
// replica was created if it has received none.
func (r *Replica) Lag() time.Duration {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return time.Duration(r.now() - max(r.lastMessage, 0))
}

// IsCurrent reports whether the replica serves entries itself: it has heard from the store within the
// maximum lag.
func (r *Replica) IsCurrent() bool { return r.now() <= r.currentUntil.Load() }

// now returns the time in nanoseconds since the replica was created. It advances while the process is
// suspended, because updates received after that must not be considered fresh.
func (r *Replica) now() int64 { return int64(time.Since(r.createdAt)) }

// Size returns the number of mirrored entries, including expired ones, and the limit.
func (r *Replica) Size() (entries, limit int) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return len(r.mirror.entries), r.mirror.max
}

// Get implements [store.Store]. If the store must be asked and does not respond, the error is
// [store.ErrUnavailable].
func (r *Replica) Get(ctx context.Context, key string) ([]byte, error) {
	mirrored := hasAnyPrefix(key, r.mirroredPrefixes)
	if !mirrored && !hasAnyPrefix(key, r.cachedPrefixes) {
		return r.SharedStore.Get(ctx, key)
	}
	now := r.now()
	if now > r.currentUntil.Load() {
		return r.fetch(ctx, key, !mirrored)
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
	e, found, reliable := r.mirror.get(key, now)
	reliable = reliable && !r.changed.has(key)
	r.mu.RUnlock()
	switch {
	case !reliable:
		return r.fetch(ctx, key, false)
	case !found:
		return nil, store.ErrNotFound
	}
	return []byte(e.value), nil
}

func (r *Replica) getCached(ctx context.Context, key string, now int64) ([]byte, error) {
	cached, found := r.cache.Get(key)
	if found && now < cached.expires {
		return cached.result()
	}
	value, err := r.fetch(ctx, key, true)
	if found && isUnavailable(err) && r.IsCurrent() { // no change was announced
		return cached.result()
	}
	return value, err
}

// cachedResult is the cached result of a Get.
type cachedResult struct {
	value   []byte // nil: no entry
	expires int64
}

func (k cachedResult) result() ([]byte, error) {
	if k.value == nil {
		return nil, store.ErrNotFound
	}
	return bytes.Clone(k.value), nil
}

// mirror contains all entries of some kinds, unless they exceed max. Times are in nanoseconds since the
// replica was created.
type mirror struct {
	entries      map[string]entry
	max          int // entries
	isComplete   bool
	missingUntil int64 // until then, entries that did not fit may exist
}

type entry struct {
	value   string
	expires int64
}

// get returns an entry. reliable reports whether the result is reliable: no missing entry could contradict it.
func (m *mirror) get(key string, now int64) (e entry, found, reliable bool) {
	e, found = m.entries[key]
	if found && now < e.expires {
		return e, true, m.isComplete
	}
	return entry{}, false, m.isComplete && now >= m.missingUntil
}

// reset empties the mirror before all entries are added.
func (m *mirror) reset(n int) {
	m.entries, m.missingUntil, m.isComplete = make(map[string]entry, min(n, m.max)), 0, true
}

// put applies a change. If an entry does not fit, it records that an entry is missing.
func (m *mirror) put(c store.Change, madeAt time.Time, now int64) {
	expires := int64(c.ExpiresAt.Sub(madeAt))
	if c.Value == nil || expires <= now {
		delete(m.entries, c.Key)
		return
	}
	m.sweep(sweepPerChange, now)
	if _, found := m.entries[c.Key]; !found && len(m.entries) >= m.max {
		m.missingUntil = max(m.missingUntil, expires)
		return
	}
	m.entries[c.Key] = entry{string(c.Value), expires}
}

// Number of entries checked for expiry. In the long run, fewer than one in sweepPerChange is expired.
const (
	sweepPerChange = 8
	sweepPerUpdate = 256
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
	// cacheLifetime is the cache lifetime of a result, because the store does not announce expiry.
	cacheLifetime = time.Minute

	// maxSharedAge is the maximum age of a pending Get to share its result with other callers.
	maxSharedAge = time.Second

	// resultOverhead is the memory of a cached result in addition to its key and value, in bytes.
	resultOverhead = 200
)

// A pendingGet is a pending Get, shared by all callers that request the key in the meantime.
type pendingGet struct {
	startedAt int64
	isStale   bool // the entry has changed since the Get started; guarded by Replica.mu
	done      chan struct{}

	value []byte // valid once done is closed
	err   error
}

func isUnavailable(err error) bool { return errors.Is(err, store.ErrUnavailable) }

// fetch reads an entry from the store. If useCache is set, the result is cached.
func (r *Replica) fetch(ctx context.Context, key string, useCache bool) ([]byte, error) {
	a, isOwner := r.joinPendingGet(key)
	if isOwner {
		// Other callers wait for the result too, so it must not be canceled with this request.
		a.value, a.err = r.SharedStore.Get(context.WithoutCancel(ctx), key)
		r.completeGet(key, a, useCache)
		return bytes.Clone(a.value), a.err
	}
	select {
	case <-a.done:
		return bytes.Clone(a.value), a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// joinPendingGet returns the pending Get for a key, or a new one that the caller must execute.
func (r *Replica) joinPendingGet(key string) (a *pendingGet, isOwner bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	if a := r.pendingGets[key]; a != nil && now-a.startedAt <= int64(maxSharedAge) {
		return a, false
	}
	r.invalidate(key)
	a = &pendingGet{startedAt: now, done: make(chan struct{})}
	r.pendingGets[key] = a
	return a, true
}

// completeGet completes a Get. The result of a Get that started before a change is not cached, because the
// change has already been announced.
func (r *Replica) completeGet(key string, a *pendingGet, useCache bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer close(a.done)
	if a.isStale {
		return
	}
	delete(r.pendingGets, key)
	if useCache && (a.err == nil || errors.Is(a.err, store.ErrNotFound)) {
		r.cache.Put(key, cachedResult{a.value, r.now() + int64(cacheLifetime)}, int64(len(key)+len(a.value)+resultOverhead))
	}
}

// evict removes the cached result for a key, also of a pending Get. It requires the lock.
func (r *Replica) evict(key string) {
	r.cache.Delete(key)
	r.invalidate(key)
}

// invalidate prevents the pending Get for a key from being shared and its result from being cached. It
// requires the lock.
func (r *Replica) invalidate(key string) {
	if a := r.pendingGets[key]; a != nil {
		a.isStale = true
		delete(r.pendingGets, key)
	}
}

// evictAll is like evict, but for all keys. It requires the lock.
func (r *Replica) evictAll() {
	r.cache.DeleteFunc(func(string, cachedResult) bool { return true })
	for _, a := range r.pendingGets {
		a.isStale = true
	}
	clear(r.pendingGets)
}

// maxChangedKeys is the maximum number of keys in changed, which is reached only if following fails.
const maxChangedKeys = 10_000

// changedKeys contains the mirrored keys that this process changed. They are read from the store until it
// has announced the change. The replica does not apply the change itself, because a later change by
// another process may already have been announced.
type changedKeys struct {
	changedAt map[string]int64 // time of the store's response, by key

	overflowed bool // more keys than fit into at
	latest     int64
}

func (c *changedKeys) has(key string) bool {
	if len(c.changedAt) == 0 { // the usual case
		return c.overflowed
	}
	_, found := c.changedAt[key]
	return found || c.overflowed
}

func (c *changedKeys) add(key string, now int64) {
	if c.latest = now; len(c.changedAt) >= maxChangedKeys {
		c.changedAt, c.overflowed = nil, true
		return
	}
	if c.changedAt == nil {
		c.changedAt = map[string]int64{}
	}
	c.changedAt[key] = now
}

// removeAnnounced removes the changes that the store has announced by the time lastMessage.
func (c *changedKeys) removeAnnounced(lastMessage int64) {
	for key, at := range c.changedAt {
		if at < lastMessage {
			delete(c.changedAt, key)
		}
	}
	if c.latest < lastMessage {
		c.overflowed = false
	}
}

// Put implements [store.Store].
func (r *Replica) Put(ctx context.Context, key string, value []byte, ttl time.Duration) error {
	return r.recordChange(key, r.SharedStore.Put(ctx, key, value, ttl))
}

// Add implements [store.Store].
func (r *Replica) Add(ctx context.Context, key string, value []byte, ttl time.Duration) error {
	return r.recordChange(key, r.SharedStore.Add(ctx, key, value, ttl))
}

// Swap implements [store.Store].
func (r *Replica) Swap(ctx context.Context, key string, old, value []byte, ttl time.Duration) error {
	return r.recordChange(key, r.SharedStore.Swap(ctx, key, old, value, ttl))
}

// Take implements [store.Store].
func (r *Replica) Take(ctx context.Context, key string) ([]byte, error) {
	value, err := r.SharedStore.Take(ctx, key)
	return value, r.recordChange(key, err)
}

// Delete implements [store.Store].
func (r *Replica) Delete(ctx context.Context, key string) error {
	return r.recordChange(key, r.SharedStore.Delete(ctx, key))
}

// Append implements [store.Store].
func (r *Replica) Append(ctx context.Context, key string, item []byte, maxItems int, ttl time.Duration) error {
	return r.recordChange(key, r.SharedStore.Append(ctx, key, item, maxItems, ttl))
}

// Do implements [store.Store]. It always uses the store, even for Get.
func (r *Replica) Do(ctx context.Context, calls ...*store.Call) error {
	err := r.SharedStore.Do(ctx, calls...)
	for _, c := range calls {
		if c.Op != store.Get {
			_ = r.recordChange(c.Key, err)
		}
	}
	return err
}

// recordChange forgets the key that a call has changed, and returns the call's error. If a call failed although
// its change was made, the change is announced like those of other processes.
func (r *Replica) recordChange(key string, err error) error {
	mirrored := hasAnyPrefix(key, r.mirroredPrefixes)
	if err != nil || !mirrored && !hasAnyPrefix(key, r.cachedPrefixes) {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.evict(key); mirrored {
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
	var lostAt time.Time // zero: following
	pause := minPause
	for ctx.Err() == nil {
		startedAt := time.Now()
		err := r.Subscribe(ctx, func(u store.Update) {
			r.applyUpdate(u)
			r.notify(u)
			if !lostAt.IsZero() {
				r.logger.InfoContext(ctx, "receiving store changes again", "after", time.Since(lostAt).Round(time.Millisecond))
				lostAt = time.Time{}
			}
		})
		if ctx.Err() != nil {
			return
		}
		if lostAt.IsZero() && !isUnavailable(err) { // the breaker logs outages
			lostAt = time.Now()
			r.logger.WarnContext(ctx, "receiving store changes failed; retrying", "error", err)
		}
		if time.Since(startedAt) > steadyAfter {
			pause = minPause
		}
		sleep(ctx, pause/2+rand.N(pause/2)) // randomized, so that gateways do not reconnect simultaneously
		pause = min(2*pause, maxPause)
	}
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// applyUpdate applies the changes that the store announces.
func (r *Replica) applyUpdate(u store.Update) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now, lastMessage := r.now(), int64(u.QueriedAt.Sub(r.createdAt))
	if u.IsComplete {
		r.mirror.reset(len(u.Changes))
		r.evictAll()
	}
	for _, c := range u.Changes {
		if hasAnyPrefix(c.Key, r.mirroredPrefixes) {
			r.mirror.put(c, r.createdAt, now)
		}
		r.evict(c.Key)
	}
	r.mirror.sweep(sweepPerUpdate, now)
	r.changed.removeAnnounced(lastMessage)
	if r.mirror.isComplete && lastMessage > r.lastMessage {
		r.lastMessage = lastMessage
		r.updateCurrentUntil()
	}
}
