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

// Set is the quotas of a configuration. A nil Set has no quotas. It is safe for concurrent use.
type Set struct {
	by      map[HolderKind][]*limit
	counts  *Counts
	shared  *Shared
	refused func(name string)
}

// NewSet returns a set of quotas with existing counts. shared is the common store, nil if this gateway counts alone. refused is
// called with the name of a quota that refuses a request.
func NewSet(quotas []Quota, counts *Counts, shared *Shared, refused func(name string)) *Set {
	s := &Set{by: map[HolderKind][]*limit{}, counts: counts, shared: shared, refused: refused}
	for _, q := range quotas {
		s.by[q.HolderKind] = append(s.by[q.HolderKind], newLimit(q))
	}
	return s
}

// Limits reports whether a quota counts by a kind of holder.
func (s *Set) Limits(by HolderKind) bool { return s != nil && len(s.by[by]) > 0 }

// Consume counts a request in all quotas of a kind of holder, and adds RateLimit fields. If a quota is used up, it returns a
// [*ExceededError] and counts the request in no quota.
func (s *Set) Consume(ctx context.Context, to http.Header, by HolderKind, whose, what string) error {
	if !s.Limits(by) {
		return nil
	}
	for i, l := range s.by[by] {
		cost := l.cost(what)
		if cost == 0 {
			continue
		}
		h := s.counts.holder(keyOf(&l.Quota, whose))
		standing := s.take(ctx, l, h, cost)
		l.tell(to, standing)
		if !standing.refused {
			continue
		}
		for _, earlier := range s.by[by][:i] {
			if cost := earlier.cost(what); cost > 0 {
				s.counts.holder(keyOf(&earlier.Quota, whose)).refund(cost)
			}
		}
		s.refused(l.Name)
		return l.refusal(to, standing, h.note(s.counts.now()))
	}
	return nil
}

// Charge counts further cost of an admitted request, even over the limit.
func (s *Set) Charge(by HolderKind, whose, what string) {
	if !s.Limits(by) {
		return
	}
	for _, l := range s.by[by] {
		if cost := l.cost(what); cost > 0 {
			h := s.counts.holder(keyOf(&l.Quota, whose))
			h.mu.Lock()
			h.used.add(l.local, s.counts.now(), cost)
			h.lease.left -= cost
			h.mu.Unlock()
		}
	}
}

func (s *Set) take(ctx context.Context, l *limit, h *holder, cost int) standing {
	standing, asks := s.takeHere(l, h, cost)
	if standing.refused || !asks {
		return standing
	}
	return s.ask(ctx, l, h, cost, standing)
}

// takeHere counts a request at this gateway. asks reports whether a step of the store is needed.
func (s *Set) takeHere(l *limit, h *holder, cost int) (_ standing, asks bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := s.counts.now()
	h.used.expire(l.local, now)
	if over := h.used.sum + cost - l.Limit; over > 0 {
		return standing{true, max(0, cost-over), h.used.wait(l.local, now, over)}, false
	}
	if len(h.used.runs) == 0 {
		h.lease.forget()
	}
	h.used.add(l.local, now, cost)
	at := standing{false, l.Limit - h.used.sum, h.used.wait(l.local, now, 1)}
	if s.shared == nil {
		return at, false
	}
	if h.lease.covers(cost, l, now) {
		return h.lease.limits(at, l, now), false
	}
	return at, true
}

const (
	askTimeout = time.Second // maximum wait of a request for the store
	askPause   = time.Second // pause after an unanswered call, or a refusal by the store
)

// ask leases the cost of a request that this gateway has counted. If the store does not respond in time, or other gateways win
// every round, the request is admitted.
func (s *Set) ask(ctx context.Context, l *limit, h *holder, cost int, at standing) standing {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTimeout) // a client that disconnects is counted all the same
	defer cancel()
	select {
	case h.lease.turn <- struct{}{}:
		defer func() { <-h.lease.turn }()
	case <-ctx.Done():
		return s.settle(l, h, cost, at, borrowed{}, ctx.Err())
	}
	h.mu.Lock()
	now := s.counts.now()
	wait := h.lease.refuses(cost, now)
	covered := wait <= 0 && h.lease.covers(cost, l, now)
	owed, step := max(0, -h.lease.left), h.lease.next(l, now)
	h.mu.Unlock()
	switch {
	case wait > 0:
		return h.refuse(cost, wait)
	case covered:
		return at
	}
	b, err := s.shared.borrow(ctx, l, h, cost, owed, step)
	b.told = owed
	return s.settle(l, h, cost, at, b, err)
}

// settle records the result of borrowing from the store.
func (s *Set) settle(l *limit, h *holder, cost int, at standing, b borrowed, err error) standing {
	h.mu.Lock()
	now := s.counts.now()
	e := &h.lease
	switch {
	case err != nil:
		e.left -= cost // reported later
		if !errors.Is(err, errBusy) {
			e.away = now + int64(askPause)
		}
	case b.wait > 0:
		e.free, e.asked = b.free, now
		e.refusedCost, e.retryAt = cost, now+int64(b.wait)
		e.refusedAt = now + int64(min(b.wait, askPause))
		h.mu.Unlock()
		return h.refuse(cost, b.wait)
	default:
		e.left, e.step, e.free, e.asked = e.left+b.told+b.extra, b.extra, b.free, now
		at = e.limits(at, l, now)
		s.endLater(l, h)
	}
	h.mu.Unlock()
	return at
}

// endLater returns the unused part of a lease when it ends. The caller must hold the lock.
func (s *Set) endLater(l *limit, h *holder) {
	if h.lease.end != nil {
		h.lease.end.Stop()
	}
	if h.lease.left > l.Limit/keptShare {
		h.lease.end = time.AfterFunc(l.leaseTime(), func() { s.end(l, h) })
	}
}

func (s *Set) end(l *limit, h *holder) {
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	select {
	case h.lease.turn <- struct{}{}:
		defer func() { <-h.lease.turn }()
	case <-ctx.Done():
		return
	}
	h.mu.Lock()
	unused := h.lease.left
	if unused > l.Limit/keptShare {
		h.lease.left = 0
	}
	h.mu.Unlock()
	if unused > l.Limit/keptShare {
		_ = s.shared.giveBack(ctx, l, h, unused) // on failure, the unused part counts as used until the window has passed
	}
}

// MaxHolders is the maximum number of holders counted at once, at about 1 KB each. The least recently active are dropped.
const MaxHolders = 100_000

// Counts are the used quotas of the holders in a process, across reloads.
type Counts struct {
	began time.Time

	mu      sync.Mutex // guards lookup and insertion of a holder
	holders boundedcache.Cache[holderKey, *holder]
}

// NewCounts returns empty counts.
func NewCounts() *Counts {
	c := &Counts{began: time.Now()}
	c.holders.MaxEntries = MaxHolders
	return c
}

// Destruct does nothing: leases end by themselves.
func (*Counts) Destruct() error { return nil }

// holderKey is a hash, so that keys have a fixed size and no names stay in memory.
type holderKey [16]byte

// keyOf returns the key of a holder of a quota. It contains the window, because counts in parts of another window are
// meaningless.
func keyOf(q *Quota, whose string) (key holderKey) {
	text := make([]byte, 0, 128)
	text = append(text, q.Name...)
	text = append(append(text, 0), q.HolderKind...)
	text = strconv.AppendInt(append(text, 0), int64(q.Window), 10)
	text = append(append(text, 0), whose...)
	sum := sha256.Sum256(text)
	copy(key[:], sum[:])
	return key
}

// holder is the usage of one quota by one holder.
type holder struct {
	key holderKey

	mu    sync.Mutex
	used  window // usage at this gateway
	noted int64  // end of the interval without further notes of a refusal
	lease lease
}

func (c *Counts) holder(key holderKey) *holder {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h, ok := c.holders.Get(key); ok {
		return h
	}
	h := &holder{key: key, lease: lease{turn: make(chan struct{}, 1)}}
	c.holders.Put(key, h, 0)
	return h
}

// now returns the nanoseconds since the counts began, by the monotonic clock.
func (c *Counts) now() int64 { return int64(time.Since(c.began)) }

// refund returns the cost of an admitted request.
func (h *holder) refund(cost int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.used.giveBack(cost)
	h.lease.left += cost
}

// refuse returns the cost of a request that this gateway has counted, and refuses it.
func (h *holder) refuse(cost int, wait time.Duration) standing {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.used.giveBack(cost)
	return standing{true, max(0, min(h.lease.free, cost-1)), wait}
}

// noteEvery is the minimum interval between notes of refusals for a holder.
const noteEvery = time.Minute

func (h *holder) note(now int64) (first bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if first = h.noted == 0 || now >= h.noted; first {
		h.noted = now + int64(noteEvery)
	}
	return first
}

// Number of parts of a window: in this process, and in a shared store, where entries should be short.
const (
	localParts  = 128
	sharedParts = 64
)

// ruler divides time into parts of a window. Part numbers are compared only by difference, so they may wrap.
type ruler struct {
	part  time.Duration
	parts uint32
}

func newRuler(window time.Duration, parts uint32) ruler {
	return ruler{window / time.Duration(parts), parts}
}

// window is the usage in each of the last parts.
type window struct {
	runs []run // the oldest first
	sum  int
}

type run struct{ part, used uint32 }

// at returns the part of a time in nanoseconds since a fixed moment.
func (r ruler) at(nanoseconds int64) uint32 { return uint32(nanoseconds / int64(r.part)) } //nolint:gosec // it may wrap

// expire removes parts older than the window. The oldest part counts until all of it is older.
func (w *window) expire(r ruler, nanoseconds int64) {
	now, n := r.at(nanoseconds), 0
	for n < len(w.runs) && now-w.runs[n].part > r.parts {
		w.sum -= int(w.runs[n].used)
		n++
	}
	if n > 0 {
		w.runs = append(w.runs[:0], w.runs[n:]...)
	}
}

func (w *window) add(r ruler, nanoseconds int64, used int) {
	used = min(used, math.MaxInt32-w.sum)
	if used <= 0 {
		return
	}
	w.sum += used
	now := r.at(nanoseconds)
	if n := len(w.runs); n > 0 && w.runs[n-1].part == now {
		w.runs[n-1].used += uint32(used) //nolint:gosec // at most the sum
		return
	}
	w.runs = append(w.runs, run{now, uint32(used)}) //nolint:gosec // at most the sum
}

// giveBack removes the usage counted last.
func (w *window) giveBack(unused int) {
	for n := len(w.runs); n > 0 && unused > 0; n = len(w.runs) {
		last := &w.runs[n-1]
		back := min(unused, int(last.used))
		last.used -= uint32(back) //nolint:gosec // at most what is there
		w.sum -= back
		unused -= back
		if last.used == 0 {
			w.runs = w.runs[:n-1]
		}
	}
}

// wait returns the time until some of the usage expires.
func (w *window) wait(r ruler, nanoseconds int64, some int) time.Duration {
	for _, u := range w.runs {
		if some -= int(u.used); some <= 0 {
			over := int64(r.at(nanoseconds)-u.part) * int64(r.part)
			since := nanoseconds % int64(r.part)
			return time.Duration(int64(r.parts+1)*int64(r.part) - over - since)
		}
	}
	return 0
}

// appendTo encodes a window: the first part, then differences of parts, each with its usage.
func (w *window) appendTo(b []byte) []byte {
	last := uint32(0)
	for _, u := range w.runs {
		b = binary.AppendUvarint(b, uint64(u.part-last))
		b = binary.AppendUvarint(b, uint64(u.used))
		last = u.part
	}
	return b
}

var errDamaged = errors.New("a damaged count")

// decode decodes the output of appendTo.
func decode(b []byte) (w window, err error) {
	last := uint32(0)
	for len(b) > 0 {
		part, n := binary.Uvarint(b)
		used, m := binary.Uvarint(b[max(n, 0):])
		if n <= 0 || m <= 0 || part > math.MaxUint32 || used == 0 || used > math.MaxInt32 {
			return window{}, errDamaged
		}
		last += uint32(part)
		w.runs = append(w.runs, run{last, uint32(used)})
		w.sum += int(used)
		b = b[n+m:]
	}
	return w, nil
}
