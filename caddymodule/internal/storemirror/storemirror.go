// Package storemirror implements a local replica of the frequently read entries of a store that several gateways share, so that
// most requests need no round trip.
//
// The store announces changes of certain kinds of keys. For mirrored kinds, the replica contains all entries, so it can also
// detect that an entry does not exist. For cached kinds, it stores recently read entries until a change is announced. Both are
// used only if the replica has received a message from the store within the maximum lag. Otherwise, the replica reads each
// entry from the store.
//
// An entry in the replica may be outdated by up to the maximum lag but always reflects changes made by this process. Use
// [Replica.Do] for reads that must be current.
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

// Defaults for [Config].
const (
	DefaultMaxLag        = 5 * time.Second
	DefaultMaxMirrored   = 500_000  // entries of about 200 bytes each
	DefaultMaxCacheBytes = 64 << 20 // in bytes
)

// Unlimited is a maximum lag that is never exceeded.
const Unlimited time.Duration = -1

// Config configures a [Replica].
type Config struct {
	MirroredKinds []string // kinds of entries that are all replicated; see [store.KindOf]
	CachedKinds   []string // kinds of entries that are cached when they are read

	MaxMirrored   int   // maximum number of mirrored entries; others are read from the store. Default: [DefaultMaxMirrored].
	MaxCacheBytes int64 // maximum size of the cache in bytes. Default: [DefaultMaxCacheBytes].

	// Notify is called with each update after the replica has applied the update. It must not block. Default: nil.
	Notify func(store.Update)

	Logger *slog.Logger // logger for the start and end of failures of the subscription to the store
}

// Replica is a [store.Store] in front of a shared store, for a process that reads more often than it writes. It handles
// [Replica.Get] for mirrored and cached kinds itself and delegates all other operations to the store. Unless [Replica.Run] is
// running, it delegates every operation.
type Replica struct {
	store.SharedStore

	mirroredPrefixes, cachedPrefixes []string // key prefixes
	createdAt                        time.Time
	notify                           func(store.Update)
	currentUntil                     atomic.Int64 // time until which the replica is current, in nanoseconds since createdAt
	logger                           *slog.Logger

	mu          sync.RWMutex
	lastMessage int64         // time of the last message from the store, in nanoseconds since createdAt
	maxLag      time.Duration // a negative value means no limit
	mirror      mirror
	changed     changedKeys
	pendingGets map[string]*pendingGet // pending calls to Get by key

	cache boundedcache.Cache[string, cachedResult] // only modified while mu is held
}

// noMessage is the value of lastMessage before the first update.
const noMessage = math.MinInt64 / 2

// New returns an empty replica of a store. The maximum lag is [DefaultMaxLag].
func New(s store.SharedStore, c Config) *Replica {
	r := &Replica{
		SharedStore: s, mirroredPrefixes: keyPrefixes(c.MirroredKinds), cachedPrefixes: keyPrefixes(c.CachedKinds), createdAt: time.Now(), notify: c.Notify, logger: c.Logger,
		lastMessage: noMessage, mirror: mirror{max: c.MaxMirrored}, pendingGets: map[string]*pendingGet{},
	}
	if c.MaxMirrored <= 0 {
		r.mirror.max = DefaultMaxMirrored
	}
	if r.cache.MaxCost = c.MaxCacheBytes; c.MaxCacheBytes <= 0 {
		r.cache.MaxCost = DefaultMaxCacheBytes
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

// SetMaxLag sets how long the replica is used after the last message from the store. [Unlimited] means that there is no limit.
func (r *Replica) SetMaxLag(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.maxLag = d
	r.updateCurrentUntil()
}

// updateCurrentUntil updates currentUntil from lastMessage and maxLag. The caller must hold the lock.
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

// Lag returns the time since the request to the store that returned the replica's latest changes. If there was none, it returns
// the time since the replica was created.
func (r *Replica) Lag() time.Duration {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return time.Duration(r.now() - max(r.lastMessage, 0))
}

// IsCurrent reports whether the replica handles reads itself, because it has received a message from the store within the
// maximum lag.
func (r *Replica) IsCurrent() bool { return r.now() <= r.currentUntil.Load() }

// now returns the time in nanoseconds since the replica was created. It includes the time while the process is suspended,
// because updates received after that must not be considered recent.
func (r *Replica) now() int64 { return int64(time.Since(r.createdAt)) }

// Size returns the number of mirrored entries, including expired ones, and the maximum number.
func (r *Replica) Size() (entries, limit int) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return len(r.mirror.entries), r.mirror.max
}

// Get implements [store.Store]. If the entry must be read from the store and the store does not respond, the error is
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
	if found && isUnavailable(err) && r.IsCurrent() { // no change of the entry was announced
		return cached.result()
	}
	return value, err
}

// cachedResult is a result of Get in the cache.
type cachedResult struct {
	value   []byte // nil means that the entry does not exist
	expires int64
}

func (k cachedResult) result() ([]byte, error) {
	if k.value == nil {
		return nil, store.ErrNotFound
	}
	return bytes.Clone(k.value), nil
}

// mirror contains all entries of the mirrored kinds, unless their number exceeds max. Times are in nanoseconds since the
// replica was created.
type mirror struct {
	entries      map[string]entry
	max          int // maximum number of entries
	isComplete   bool
	missingUntil int64 // time until which there may be entries in the store that did not fit
}

type entry struct {
	value   string
	expires int64
}

// get returns an entry. reliable reports whether no missing entry could contradict the result.
func (m *mirror) get(key string, now int64) (e entry, found, reliable bool) {
	e, found = m.entries[key]
	if found && now < e.expires {
		return e, true, m.isComplete
	}
	return entry{}, false, m.isComplete && now >= m.missingUntil
}

// reset empties the mirror before n entries, which are all entries in the store, are added.
func (m *mirror) reset(n int) {
	m.entries, m.missingUntil, m.isComplete = make(map[string]entry, min(n, m.max)), 0, true
}

// put applies a change. If the entry does not fit, put records that entries are missing.
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

// Number of entries checked for expiry per change. In the long run, fewer than one in sweepPerChange entries is expired.
const (
	sweepPerChange = 8
	sweepPerUpdate = 256
)

// sweep checks n arbitrary entries and removes those that have expired.
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
	// cacheLifetime is how long a result is cached. It is limited because the store doesn't announce expired entries.
	cacheLifetime = time.Minute

	// maxSharedAge is the maximum age of a pending Get that other callers may join.
	maxSharedAge = time.Second

	// resultOverhead is the memory that a cached result uses in addition to its key and value, in bytes.
	resultOverhead = 200
)

// A pendingGet is a Get in progress. All callers that request the key in the meantime share it.
type pendingGet struct {
	startedAt int64
	isStale   bool // whether the entry has changed since the Get started; guarded by Replica.mu
	done      chan struct{}

	value []byte // valid after done has been closed
	err   error
}

func isUnavailable(err error) bool { return errors.Is(err, store.ErrUnavailable) }

// fetch reads an entry from the store. If useCache is true, the result is cached.
func (r *Replica) fetch(ctx context.Context, key string, useCache bool) ([]byte, error) {
	a, isOwner := r.joinPendingGet(key)
	if isOwner {
		// Other callers may be waiting for the result, so it must not be canceled together with this request.
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

// joinPendingGet returns the pending Get for a key. If there is none, it returns a new one, which the caller must execute.
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

// completeGet completes a pending Get. If the entry was changed after the Get started, the result is not cached, because the
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

// evict removes the cached result for a key, including that of a pending Get. The caller must hold the lock.
func (r *Replica) evict(key string) {
	r.cache.Delete(key)
	r.invalidate(key)
}

// invalidate prevents the pending Get for a key from being shared and its result from being cached. The caller must hold the
// lock.
func (r *Replica) invalidate(key string) {
	if a := r.pendingGets[key]; a != nil {
		a.isStale = true
		delete(r.pendingGets, key)
	}
}

// evictAll is like evict but for all keys. The caller must hold the lock.
func (r *Replica) evictAll() {
	r.cache.DeleteFunc(func(string, cachedResult) bool { return true })
	for _, a := range r.pendingGets {
		a.isStale = true
	}
	clear(r.pendingGets)
}

// maxChangedKeys is the maximum number of keys in changedKeys. It is reached only if the subscription fails.
const maxChangedKeys = 10_000

// changedKeys contains the mirrored keys that this process has changed. Their entries are read from the store until the store
// has announced the change. The replica does not apply the change itself, because a later change by another process may already
// have been announced.
type changedKeys struct {
	changedAt map[string]int64 // time of the store's response by key

	overflowed bool // there are more keys than fit into changedAt
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

// removeAnnounced removes the changes that the store has announced by the time of its last message.
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

// Do implements [store.Store]. It always calls the store, even for Get.
func (r *Replica) Do(ctx context.Context, calls ...*store.Call) error {
	err := r.SharedStore.Do(ctx, calls...)
	for _, c := range calls {
		if c.Op != store.Get {
			_ = r.recordChange(c.Key, err)
		}
	}
	return err
}

// recordChange invalidates the key that a call has changed and returns the error of the call. If a call failed although the
// change was made, the change is announced like those of other processes.
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

// Delays before Run subscribes to the store again. The delay is doubled after each failure and reset after the subscription has
// worked for steadyAfter. Each subscription may read all entries.
const (
	minPause    = 100 * time.Millisecond
	maxPause    = 2 * time.Second
	steadyAfter = 10 * time.Second
)

// Run subscribes to the store until ctx is canceled. It retries after failures.
func (r *Replica) Run(ctx context.Context) {
	var lostAt time.Time // zero while the subscription works
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
		if lostAt.IsZero() && !isUnavailable(err) { // outages are logged by the breaker
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

// applyUpdate applies the changes in an update from the store.
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
