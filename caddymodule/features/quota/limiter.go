package quota

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"math"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/boundedcache"
)

// Set contains the quotas of a configuration. A nil Set has no quotas. It is safe for concurrent use.
type Set struct {
	limits     map[HolderKind][]*limit
	counts     *Counts
	shared     *Shared
	onExceeded func(name string)
}

// NewSet returns a set of quotas with existing counts. shared is the store that gateways share; nil if this gateway counts
// alone. onExceeded is called with the name of a quota when that quota rejects a request.
func NewSet(quotas []Quota, counts *Counts, shared *Shared, onExceeded func(name string)) *Set {
	s := &Set{limits: map[HolderKind][]*limit{}, counts: counts, shared: shared, onExceeded: onExceeded}
	for _, q := range quotas {
		s.limits[q.HolderKind] = append(s.limits[q.HolderKind], newLimit(q))
	}
	return s
}

// HasLimit reports whether there is a quota for a kind of holder.
func (s *Set) HasLimit(kind HolderKind) bool { return s != nil && len(s.limits[kind]) > 0 }

// Consume counts a request in all quotas for a kind of holder, and adds RateLimit fields. If a quota is used up, it returns an
// [*ExceededError] and counts the request in none of them.
func (s *Set) Consume(ctx context.Context, to http.Header, holderKind HolderKind, holderID, requestKind string) error {
	if !s.HasLimit(holderKind) {
		return nil
	}
	for i, l := range s.limits[holderKind] {
		cost := l.cost(requestKind)
		if cost == 0 {
			continue
		}
		h := s.counts.holder(newHolderKey(&l.Quota, holderID))
		standing := s.admit(ctx, l, h, cost)
		l.setHeaders(to, standing)
		if !standing.exceeded {
			continue
		}
		for _, earlier := range s.limits[holderKind][:i] {
			if cost := earlier.cost(requestKind); cost > 0 {
				s.counts.holder(newHolderKey(&earlier.Quota, holderID)).refund(cost)
			}
		}
		s.onExceeded(l.Name)
		return l.exceededError(to, standing, h.shouldReport(s.counts.now()))
	}
	return nil
}

// Charge adds the cost of an additional request to all quotas for a kind of holder, even over the limit.
func (s *Set) Charge(holderKind HolderKind, holderID, requestKind string) {
	if !s.HasLimit(holderKind) {
		return
	}
	for _, l := range s.limits[holderKind] {
		if cost := l.cost(requestKind); cost > 0 {
			h := s.counts.holder(newHolderKey(&l.Quota, holderID))
			h.mu.Lock()
			h.usage.add(l.localParts, s.counts.now(), cost)
			h.lease.remaining -= cost
			h.mu.Unlock()
		}
	}
}

func (s *Set) admit(ctx context.Context, l *limit, h *holder, cost int) quotaState {
	standing, needsStore := s.admitLocally(l, h, cost)
	if standing.exceeded || !needsStore {
		return standing
	}
	return s.leaseFromStore(ctx, l, h, cost, standing)
}

// admitLocally counts a request at this gateway. needsStore reports whether the request also needs a lease from the store.
func (s *Set) admitLocally(l *limit, h *holder, cost int) (_ quotaState, needsStore bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := s.counts.now()
	h.usage.expire(l.localParts, now)
	if excess := h.usage.sum + cost - l.Limit; excess > 0 {
		return quotaState{true, max(0, cost-excess), h.usage.timeUntilFree(l.localParts, now, excess)}, false
	}
	if len(h.usage.parts) == 0 {
		h.lease.reset()
	}
	h.usage.add(l.localParts, now, cost)
	at := quotaState{false, l.Limit - h.usage.sum, h.usage.timeUntilFree(l.localParts, now, 1)}
	if s.shared == nil {
		return at, false
	}
	if h.lease.tryConsume(cost, l, now) {
		return h.lease.capRemaining(at, l, now), false
	}
	return at, true
}

const (
	storeTimeout = time.Second // maximum time that a request waits for the store
	storeBackoff = time.Second // pause after a failed call, or after the store rejected a request
)

// leaseFromStore leases the cost of a request that this gateway has counted. If the store does not respond in time, or changes
// by other gateways conflict each time, the request is admitted.
func (s *Set) leaseFromStore(ctx context.Context, l *limit, h *holder, cost int, local quotaState) quotaState {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout) // count the request even if the client disconnects
	defer cancel()
	select {
	case h.lease.storeCalls <- struct{}{}:
		defer func() { <-h.lease.storeCalls }()
	case <-ctx.Done():
		return s.applyLease(l, h, cost, local, leaseResult{}, ctx.Err())
	}
	h.mu.Lock()
	now := s.counts.now()
	wait := h.lease.rejectionWait(cost, now)
	isCovered := wait <= 0 && h.lease.tryConsume(cost, l, now)
	unreported, step := max(0, -h.lease.remaining), h.lease.nextSize(l, now)
	h.mu.Unlock()
	switch {
	case wait > 0:
		return h.reject(cost, wait)
	case isCovered:
		return local
	}
	b, err := s.shared.leaseQuota(ctx, l, h, cost, unreported, step)
	b.reported = unreported
	return s.applyLease(l, h, cost, local, b, err)
}

// applyLease records the result of a lease from the store.
func (s *Set) applyLease(l *limit, h *holder, cost int, local quotaState, b leaseResult, err error) quotaState {
	h.mu.Lock()
	now := s.counts.now()
	e := &h.lease
	switch {
	case err != nil:
		e.remaining -= cost // reported to the store with the next lease
		if !errors.Is(err, errConflicts) {
			e.retryStoreAt = now + int64(storeBackoff)
		}
	case b.wait > 0:
		e.storeRemaining, e.lastCall = b.remaining, now
		e.rejectedCost, e.quotaFreeAt = cost, now+int64(b.wait)
		e.rejectedUntil = now + int64(min(b.wait, storeBackoff))
		h.mu.Unlock()
		return h.reject(cost, b.wait)
	default:
		e.remaining, e.lastSize, e.storeRemaining, e.lastCall = e.remaining+b.reported+b.leased, b.leased, b.remaining, now
		local = e.capRemaining(local, l, now)
		s.scheduleReturn(l, h)
	}
	h.mu.Unlock()
	return local
}

// scheduleReturn schedules the return of the unused part of a lease. The caller must hold h.mu.
func (s *Set) scheduleReturn(l *limit, h *holder) {
	if h.lease.returnTimer != nil {
		h.lease.returnTimer.Stop()
	}
	if h.lease.remaining > l.Limit/minReturnShare {
		h.lease.returnTimer = time.AfterFunc(l.leaseDuration(), func() { s.returnLease(l, h) })
	}
}

func (s *Set) returnLease(l *limit, h *holder) {
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	select {
	case h.lease.storeCalls <- struct{}{}:
		defer func() { <-h.lease.storeCalls }()
	case <-ctx.Done():
		return
	}
	h.mu.Lock()
	unused := h.lease.remaining
	if unused > l.Limit/minReturnShare {
		h.lease.remaining = 0
	}
	h.mu.Unlock()
	if unused > l.Limit/minReturnShare {
		_ = s.shared.returnUnused(ctx, l, h, unused) // on failure, the unused part remains counted until the window has passed
	}
}

// MaxHolders is the maximum number of holders in memory, at about 1 KB each. The least recently active ones are dropped.
const MaxHolders = 100_000

// Counts are the used quotas of the holders in a process. They survive reloads.
type Counts struct {
	started time.Time

	mu      sync.Mutex // guards holders
	holders boundedcache.Cache[holderKey, *holder]
}

// NewCounts returns empty counts.
func NewCounts() *Counts {
	c := &Counts{started: time.Now()}
	c.holders.MaxEntries = MaxHolders
	return c
}

// Destruct implements [caddy.Destructor]. There is nothing to release, because leases end by themselves.
func (*Counts) Destruct() error { return nil }

// holderKey is a hash, so that keys have a fixed size and memory contains no names.
type holderKey [16]byte

// newHolderKey returns the key of a holder of a quota. The key includes the window, because counts are invalid after the length
// of the window changes.
func newHolderKey(q *Quota, holderID string) (key holderKey) {
	text := make([]byte, 0, 128)
	text = append(text, q.Name...)
	text = append(append(text, 0), q.HolderKind...)
	text = strconv.AppendInt(append(text, 0), int64(q.Window), 10)
	text = append(append(text, 0), holderID...)
	sum := sha256.Sum256(text)
	copy(key[:], sum[:])
	return key
}

// holder is the usage of one quota by one holder.
type holder struct {
	key holderKey

	mu         sync.Mutex
	usage      slidingWindow // usage at this gateway
	nextReport int64         // time until which other rejections are not reported
	lease      lease
}

func (c *Counts) holder(key holderKey) *holder {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h, ok := c.holders.Get(key); ok {
		return h
	}
	h := &holder{key: key, lease: lease{storeCalls: make(chan struct{}, 1)}}
	c.holders.Put(key, h, 0)
	return h
}

// now returns the nanoseconds since the start of the counts, by the monotonic clock.
func (c *Counts) now() int64 { return int64(time.Since(c.started)) }

// refund returns the cost of a request that was admitted.
func (h *holder) refund(cost int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.usage.removeLatest(cost)
	h.lease.remaining += cost
}

// reject returns the cost of a request that this gateway has counted. The resulting state rejects the request.
func (h *holder) reject(cost int, wait time.Duration) quotaState {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.usage.removeLatest(cost)
	return quotaState{true, max(0, min(h.lease.storeRemaining, cost-1)), wait}
}

// rejectReportInterval is the minimum interval between reports of rejections for a holder.
const rejectReportInterval = time.Minute

func (h *holder) shouldReport(now int64) (due bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if due = h.nextReport == 0 || now >= h.nextReport; due {
		h.nextReport = now + int64(rejectReportInterval)
	}
	return due
}

// Number of parts of a window: in this process, and in a shared store, where entries should be small.
const (
	localPartCount  = 128
	sharedPartCount = 64
)

// partitioner divides time into parts of a window. Only differences between part numbers matter, so the numbers may wrap.
type partitioner struct {
	partLength time.Duration
	partCount  uint32
}

func newPartitioner(window time.Duration, parts uint32) partitioner {
	return partitioner{window / time.Duration(parts), parts}
}

// slidingWindow is the usage in each of the latest parts.
type slidingWindow struct {
	parts []usedPart // oldest part first
	sum   int
}

type usedPart struct{ index, cost uint32 }

// partAt returns the number of the part that contains a time, in nanoseconds since a fixed moment.
func (r partitioner) partAt(nanoseconds int64) uint32 {
	return uint32(nanoseconds / int64(r.partLength))
} //nolint:gosec // it may wrap

// expire removes parts that are older than the window. The oldest part counts until all of it is older.
func (w *slidingWindow) expire(r partitioner, nanoseconds int64) {
	now, n := r.partAt(nanoseconds), 0
	for n < len(w.parts) && now-w.parts[n].index > r.partCount {
		w.sum -= int(w.parts[n].cost)
		n++
	}
	if n > 0 {
		w.parts = append(w.parts[:0], w.parts[n:]...)
	}
}

func (w *slidingWindow) add(r partitioner, nanoseconds int64, used int) {
	used = min(used, math.MaxInt32-w.sum)
	if used <= 0 {
		return
	}
	w.sum += used
	now := r.partAt(nanoseconds)
	if n := len(w.parts); n > 0 && w.parts[n-1].index == now {
		w.parts[n-1].cost += uint32(used) //nolint:gosec // at most the sum
		return
	}
	w.parts = append(w.parts, usedPart{now, uint32(used)}) //nolint:gosec // at most the sum
}

// removeLatest removes usage, beginning with the latest.
func (w *slidingWindow) removeLatest(unused int) {
	for n := len(w.parts); n > 0 && unused > 0; n = len(w.parts) {
		last := &w.parts[n-1]
		removed := min(unused, int(last.cost))
		last.cost -= uint32(removed) //nolint:gosec // at most what is there
		w.sum -= removed
		unused -= removed
		if last.cost == 0 {
			w.parts = w.parts[:n-1]
		}
	}
}

// timeUntilFree returns the time until the given amount of usage has expired.
func (w *slidingWindow) timeUntilFree(r partitioner, nanoseconds int64, amount int) time.Duration {
	for _, u := range w.parts {
		if amount -= int(u.cost); amount <= 0 {
			elapsed := int64(r.partAt(nanoseconds)-u.index) * int64(r.partLength)
			sincePartStart := nanoseconds % int64(r.partLength)
			return time.Duration(int64(r.partCount+1)*int64(r.partLength) - elapsed - sincePartStart)
		}
	}
	return 0
}

// appendEncoded appends the number of the first part, then the differences of part numbers, each followed by the part's usage.
func (w *slidingWindow) appendEncoded(b []byte) []byte {
	last := uint32(0)
	for _, u := range w.parts {
		b = binary.AppendUvarint(b, uint64(u.index-last))
		b = binary.AppendUvarint(b, uint64(u.cost))
		last = u.index
	}
	return b
}

var errCorruptCount = errors.New("corrupt usage count")

// decodeWindow decodes a window that appendEncoded encoded.
func decodeWindow(b []byte) (w slidingWindow, err error) {
	last := uint32(0)
	for len(b) > 0 {
		part, n := binary.Uvarint(b)
		used, m := binary.Uvarint(b[max(n, 0):])
		if n <= 0 || m <= 0 || part > math.MaxUint32 || used == 0 || used > math.MaxInt32 {
			return slidingWindow{}, errCorruptCount
		}
		last += uint32(part)
		w.parts = append(w.parts, usedPart{last, uint32(used)})
		w.sum += int(used)
		b = b[n+m:]
	}
	return w, nil
}
