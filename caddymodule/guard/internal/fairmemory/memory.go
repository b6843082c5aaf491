// Package fairmemory limits the memory that all requests use together. Each client and each person has a share. Older requests
// have priority.
//
//	Share.Grow ── larger than the entire memory ──► ErrExceedsMemory
//	   │ immediately, if the person's, the client's and the total memory suffice and no older request waits for the same
//	   ▼
//	waits for the maximum it may need ── timeout, or the youngest request of a deadlock ──► ErrBusy
//	   │ until others release memory
//	   ▼
//	more bytes ──► Share.ShrinkTo, Share.Release
//
// A reader learns the length of a response only while reading it, so it occupies memory while it waits for more. With
// golang.org/x/sync/semaphore, readers deadlock: of 20 readers of 16 MiB in steps of 64 KiB of 128 MiB, all failed when their
// patience of 10 s was exhausted. Here the youngest is rejected in favor of the oldest: 18 succeeded, all within 1.2 s.
//
// A client that reads its responses slowly occupies their memory for that time, but only in its own share: requests that wait
// for one owner's share are overtaken by those of other owners, and can fill only part of the queue.
package fairmemory

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// MaxWaiting is the maximum number of shares that wait for their first bytes.
const MaxWaiting = 1000

var (
	// ErrBusy means that other requests use the memory. A retry may succeed.
	ErrBusy = errors.New("memory limit reached by concurrent requests")
	// ErrExceedsMemory means that a share would be larger than the entire memory.
	ErrExceedsMemory = errors.New("request exceeds the memory limit")
)

// Memory is an amount of memory for shares. Create one with [New]. It is safe for concurrent use. A nil Memory is unlimited.
type Memory struct {
	maxWait time.Duration

	mu         sync.Mutex
	total      pool
	ownerPools map[Owner]*pool // pools of the owners that currently use memory
	latestAge  uint64          // number of shares that have grown so far, i.e. the age of the latest one
	waiters    []*waiter       // shares that have bytes come first, then in order of age
}

// pool is the memory that a group of shares may use: the entire memory, or an owner's part.
type pool struct {
	size, used       int64
	activeShares     int // shares that have bytes
	registeredShares int // shares that have grown and have not been released
}

// canGrant reports whether a share may get more bytes. If only one share of an owner has bytes, it may exceed the owner's part,
// so that a small memory suffices for any single request.
func (p *pool) canGrant(s *Share, bytes int64) bool {
	return p.used == s.used || bytes <= p.size-p.used
}

// waiter is a share that waits to grow.
type waiter struct {
	share     *Share
	bytes     int64
	reserved  int64      // part of bytes that the share does not need yet
	blockedBy *pool      // pool that is exhausted or has an earlier waiter
	result    chan error // buffered, for the single result
}

// New returns a memory of size bytes. patience is the maximum total waiting time of a share.
func New(size int64, patience time.Duration) *Memory {
	return &Memory{maxWait: patience, total: pool{size: size}, ownerPools: map[Owner]*pool{}}
}

// InUse returns the number of bytes that all shares use.
func (m *Memory) InUse() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.total.used
}

// Size returns the size of the memory in bytes.
func (m *Memory) Size() int64 { return m.total.size }

// growOrEnqueue grants a share more bytes, or enqueues it to wait for the maximum that it may need.
func (m *Memory) growOrEnqueue(s *Share, bytes, maxBytes int64) (*waiter, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s.isReleased {
		return nil, ErrBusy
	}
	if s.age == 0 {
		m.register(s)
	}
	needed := bytes - s.reserved
	switch {
	case needed > m.total.size-s.used:
		return nil, ErrExceedsMemory
	case needed <= 0:
		s.reserved -= bytes
		return nil, nil
	case m.mayGrow(s, needed):
		m.allocate(s, needed, 0)
		return nil, nil
	case s.used == 0 && m.isQueueFullFor(s):
		return nil, ErrBusy
	}
	ahead := max(0, min(maxBytes-bytes, m.total.size-s.used-needed))
	return m.enqueue(&waiter{share: s, bytes: needed + ahead, reserved: ahead, result: make(chan error, 1)}), nil
}

// register sets the age and the pools of a share.
func (m *Memory) register(s *Share) {
	m.latestAge++
	s.age = m.latestAge
	for _, owner := range s.owners {
		p := m.ownerPools[owner]
		if p == nil {
			p = &pool{size: m.total.size / owner.divisor}
			m.ownerPools[owner] = p
		}
		p.registeredShares++
		s.pools = append(s.pools, p)
	}
	s.pools = append(s.pools, &m.total)
}

// mayGrow reports whether no pool of a share is exhausted and no preceding waiter waits for one of them.
func (m *Memory) mayGrow(s *Share, bytes int64) bool {
	for _, w := range m.waiters {
		if s.compare(w.share) < 0 {
			break
		}
		if slices.Contains(s.pools, w.blockedBy) {
			return false
		}
	}
	return s.exhaustedPool(bytes, nil) == nil
}

// isQueueFullFor reports whether a share without bytes may not wait. The waiting shares of a client may be as many as the free
// entries of the queue, those of a person half as many.
func (m *Memory) isQueueFullFor(s *Share) bool {
	free := MaxWaiting - len(m.waiters)
	for i, owner := range s.owners {
		if waiters := m.countWaiters(s.pools[i]); waiters*int(owner.divisor/clientDivisor) >= free {
			return true
		}
	}
	return free <= 0
}

func (m *Memory) countWaiters(p *pool) (n int) {
	for _, w := range m.waiters {
		if slices.Contains(w.share.pools, p) {
			n++
		}
	}
	return n
}

// enqueue inserts a waiter after the shares that precede it.
func (m *Memory) enqueue(w *waiter) *waiter {
	at, _ := slices.BinarySearchFunc(m.waiters, w.share, func(w *waiter, s *Share) int { return w.share.compare(s) })
	m.waiters = slices.Insert(m.waiters, at, w)
	m.grantWaiting()
	return w
}

// allocate grants bytes to a share, including ahead bytes that it needs later.
func (m *Memory) allocate(s *Share, bytes, ahead int64) {
	for _, p := range s.pools {
		if s.used == 0 && bytes > 0 {
			p.activeShares++
		}
		p.used += bytes
	}
	s.used += bytes
	s.reserved = ahead
}

// shrink reduces a share to at most to bytes, and releases its reserved bytes.
func (m *Memory) shrink(s *Share, to int64) {
	if to = min(to, s.used-s.reserved); to == s.used {
		return
	}
	for _, p := range s.pools {
		if p.used -= s.used - to; to == 0 {
			p.activeShares--
		}
	}
	s.used, s.reserved = to, 0
	m.grantWaiting()
}

// grantWaiting grants memory to waiting shares, in order, until their pools are exhausted. A share never overtakes one that
// waits for the same pool, to prevent starvation of large shares. If an owner's part is exhausted, shares of other owners
// overtake. In a deadlock between shares that have bytes, the youngest is rejected.
func (m *Memory) grantWaiting() {
	if len(m.waiters) == 0 {
		return
	}
	exhausted := map[*pool]bool{}
	m.waiters = slices.DeleteFunc(m.waiters, func(w *waiter) bool {
		if w.blockedBy = w.share.exhaustedPool(w.bytes, exhausted); w.blockedBy != nil {
			exhausted[w.blockedBy] = true
			return false
		}
		m.allocate(w.share, w.bytes, w.reserved)
		w.result <- nil
		return true
	})
	if w := m.deadlockVictim(); w != nil {
		m.finishWaiter(slices.Index(m.waiters, w), ErrBusy)
	}
}

// deadlockVictim returns the youngest share in a deadlock, or nil. A waiter can continue if another share with bytes in the
// pool that blocks it is not waiting or can itself continue.
func (m *Memory) deadlockVictim() *waiter {
	blocked, blockedShares := slices.Clone(m.waiters), map[*pool]int{}
	for _, w := range blocked {
		w.addToCounts(blockedShares, 1)
	}
	for n := -1; n != len(blocked); {
		n = len(blocked)
		blocked = slices.DeleteFunc(blocked, func(w *waiter) bool {
			if blockedShares[w.blockedBy] == w.blockedBy.activeShares {
				return false
			}
			w.addToCounts(blockedShares, -1)
			return true
		})
	}
	for _, w := range slices.Backward(blocked) {
		if w.share.used > 0 {
			return w
		}
	}
	return nil
}

// addToCounts adds n to the counts of the pools in which the waiter's share has bytes.
func (w *waiter) addToCounts(holders map[*pool]int, n int) {
	if w.share.used > 0 {
		for _, p := range w.share.pools {
			holders[p] += n
		}
	}
}

// finishWaiter removes a waiter and sends it a result.
func (m *Memory) finishWaiter(at int, result error) {
	m.waiters[at].result <- result
	m.waiters = slices.Delete(m.waiters, at, at+1)
}

// cancelWait removes a waiter from the queue, unless it already has a result.
func (m *Memory) cancelWait(w *waiter, cause error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if at := slices.Index(m.waiters, w); at >= 0 {
		m.finishWaiter(at, cause)
		m.grantWaiting()
	}
	return <-w.result
}

// release releases all bytes of a share and stops its wait.
func (m *Memory) release(s *Share) {
	s.isReleased = true
	if at := slices.IndexFunc(m.waiters, func(w *waiter) bool { return w.share == s }); at >= 0 {
		m.finishWaiter(at, ErrBusy)
		m.grantWaiting()
	}
	m.shrink(s, 0)
	for i := range min(len(s.owners), len(s.pools)) {
		if s.pools[i].registeredShares--; s.pools[i].registeredShares == 0 {
			delete(m.ownerPools, s.owners[i])
		}
	}
	s.pools = nil
}

// Share is the memory that one request uses. Create it with [Memory.Share] and release it after use. While Grow waits, only
// Release may be called.
type Share struct {
	memory        *Memory       // nil if unlimited
	remainingWait time.Duration // remaining time to wait for memory
	owners        []Owner

	// Guarded by the memory's mutex.
	pools      []*pool // pools of the owners, then the total pool; nil before the first Grow
	age        uint64  // 1 for the oldest share
	used       int64
	reserved   int64 // part of used that is not in use yet
	isReleased bool
}

// Share returns an empty share of the owners' parts. Without owners, only the size of the memory limits it.
func (m *Memory) Share(owners ...Owner) *Share {
	if m == nil {
		return &Share{}
	}
	return &Share{memory: m, remainingWait: m.maxWait, owners: owners}
}

// exhaustedPool returns the first pool of the share that is in exhausted or cannot grant the bytes; nil if all pools can.
func (s *Share) exhaustedPool(bytes int64, exhausted map[*pool]bool) *pool {
	for _, p := range s.pools {
		if exhausted[p] || !p.canGrant(s, bytes) {
			return p
		}
	}
	return nil
}

// compare orders waiting shares: those that have bytes first, because they release them once they can continue, then by age.
func (s *Share) compare(other *Share) int {
	if hasBytes := s.used > 0; hasBytes != (other.used > 0) {
		if hasBytes {
			return -1
		}
		return 1
	}
	return cmp.Compare(s.age, other.age)
}

// Grow adds bytes to the share. If it must wait, it waits for the maximum that the share may still need, so that it waits only
// once. It waits until ctx is canceled or the memory's patience is exhausted, which limits the total wait of the share. It
// returns [ErrBusy], [ErrExceedsMemory] or the cancellation cause of ctx.
func (s *Share) Grow(ctx context.Context, bytes, maxBytes int64) error {
	if s.memory == nil {
		return nil
	}
	w, err := s.memory.growOrEnqueue(s, bytes, maxBytes)
	if w == nil {
		return err
	}
	start := time.Now()
	defer func() { s.remainingWait -= time.Since(start) }()
	ctx, cancel := context.WithTimeoutCause(ctx, s.remainingWait, ErrBusy)
	defer cancel()
	select {
	case err := <-w.result:
		return err
	case <-ctx.Done():
		return s.memory.cancelWait(w, context.Cause(ctx))
	}
}

// InUse returns the number of bytes that the share uses; 0 if the memory is unlimited.
func (s *Share) InUse() int64 {
	if s.memory == nil {
		return 0
	}
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	return s.used - s.reserved
}

// ShrinkTo releases the share's unused bytes and all bytes beyond the given number.
func (s *Share) ShrinkTo(bytes int64) {
	if s.memory == nil {
		return
	}
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	s.memory.shrink(s, bytes)
}

// Release permanently releases all bytes. A later Grow fails, e.g. by a handler that is still writing.
func (s *Share) Release() {
	if s.memory == nil {
		return
	}
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	s.memory.release(s)
}

// Owner is a client, a person or a network. All shares of an owner together can use only part of the memory.
type Owner struct {
	kind, issuer, id string
	divisor          int64 // the owner's part is the memory's size divided by this
}

// Parts of the memory. A person's part is half of a client's, so that one person cannot exhaust the part that the client's
// other users need.
const (
	clientDivisor = 2
	personDivisor = 2 * clientDivisor
)

// Client returns the owner for the tokens of a client, which get at most half of the memory.
func Client(issuer, id string) Owner { return Owner{"client", issuer, id, clientDivisor} }

// Person returns the owner for the tokens of a person, which get at most a quarter of the memory across all clients.
func Person(issuer, subject string) Owner { return Owner{"person", issuer, subject, personDivisor} }

// Network returns the owner for requests without a token from a network, which get at most half of the memory.
func Network(network string) Owner { return Owner{"network", "", network, clientDivisor} }
