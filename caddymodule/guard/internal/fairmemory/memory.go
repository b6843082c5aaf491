// Package fairmemory limits the memory that all requests use together, and gives each client and each person a share. Older
// requests have priority.
//
//	Share.Grow ── larger than the whole memory ──► ErrExceedsMemory
//	   │ immediately, if there is room for the person, the client and all, and no older request waits for the same
//	   ▼
//	waits for the maximum it may need ── timeout, or the youngest request of a deadlock ──► ErrBusy
//	   │ until others release memory
//	   ▼
//	more bytes ──► Share.ShrinkTo, Share.Release
//
// A reader learns the length of a response only while reading it, so it holds one part while it waits for the next. With
// golang.org/x/sync/semaphore, readers deadlock: of 20 readers of 16 MiB in steps of 64 KiB of 128 MiB, all failed after
// their patience of 10 s. Here the youngest is rejected for the oldest: 18 succeeded, all within 1.2 s.
//
// A client that reads its responses slowly holds their memory for that time, but only its own share: requests that wait for
// one owner's share are overtaken by those of others, and occupy only their share of the places.
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
	// ErrBusy is returned while other requests use the memory. A retry may succeed.
	ErrBusy = errors.New("memory limit reached by concurrent requests")
	// ErrExceedsMemory is returned if a share would be larger than the whole memory.
	ErrExceedsMemory = errors.New("request exceeds the memory limit")
)

// Memory is an amount of memory for shares. Create one with [New]. It is safe for concurrent use. A nil Memory is unlimited.
type Memory struct {
	maxWait time.Duration

	mu         sync.Mutex
	total      pool
	ownerPools map[Owner]*pool // pools of the owners that use memory
	latestAge  uint64          // number of shares that have grown so far; the age of the latest
	waiters    []*waiter       // shares that hold bytes first, then by age
}

// pool is the memory of a group of shares: the whole memory, or an owner's part.
type pool struct {
	size, used       int64
	activeShares     int // registeredShares with bytes
	registeredShares int // shares that have grown and are not released
}

// canGrant reports whether a share may have more bytes. The only holder of an owner may exceed the owner's part, so that a small
// memory suffices for any single request.
func (p *pool) canGrant(s *Share, bytes int64) bool {
	return p.used == s.used || bytes <= p.size-p.used
}

// waiter is a share that waits to grow.
type waiter struct {
	share     *Share
	bytes     int64
	reserved  int64      // part of bytes that is needed later
	blockedBy *pool      // pool without room, or with an earlier waiter
	result    chan error // receives the single result without blocking
}

// New returns a memory of a size in bytes. Patience is the maximum total waiting time of a share.
func New(size int64, patience time.Duration) *Memory {
	return &Memory{maxWait: patience, total: pool{size: size}, ownerPools: map[Owner]*pool{}}
}

// InUse returns the number of bytes that all shares hold.
func (m *Memory) InUse() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.total.used
}

// Size returns the size in bytes.
func (m *Memory) Size() int64 { return m.total.size }

// growOrEnqueue gives a share more bytes, or makes it wait for the maximum that it may need.
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

// mayGrow reports whether all pools of a share have room, and no preceding waiter lacks one of them.
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

// isQueueFullFor reports whether a share without bytes may not wait. The waiting shares of a client may occupy as many places as
// remain free, those of a person half as many.
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

// allocate gives a share bytes, including ahead bytes that are needed later.
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

// shrink takes back the bytes of a share beyond a size, and its unused bytes.
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

// grantWaiting grants waiting shares in order, as long as their pools have room. A share never overtakes one that waits for the
// same pool, to prevent starvation of large shares. Shares of other owners overtake a share if its owner's part is exhausted.
// In a deadlock of holders, the youngest is rejected.
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

// deadlockVictim returns the youngest holder in a deadlock, or nil. A waiter can continue if a holder of the pool that it lacks
// is not waiting, or can itself continue.
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

// addToCounts adds n to the number of holders in each pool with bytes that a waiter holds.
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

// cancelWait removes a waiter that gives up, unless it already has a result.
func (m *Memory) cancelWait(w *waiter, cause error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if at := slices.Index(m.waiters, w); at >= 0 {
		m.finishWaiter(at, cause)
		m.grantWaiting()
	}
	return <-w.result
}

// release takes back all bytes of a share, and ends its wait.
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

// Share is the part of a [Memory] that one request uses. Create one with [Memory.Share], and release it. While it grows, only
// Release may be called.
type Share struct {
	memory        *Memory       // nil: unlimited
	remainingWait time.Duration // remaining
	owners        []Owner

	// Guarded by the memory's mutex.
	pools      []*pool // of the owners, then of all; nil before it grows
	age        uint64  // 1 for the first share that grew
	used       int64
	reserved   int64 // part of held that is not in use yet
	isReleased bool
}

// Share returns an empty share that counts toward its owners' parts. Without owners, only the size of the memory limits it.
func (m *Memory) Share(owners ...Owner) *Share {
	if m == nil {
		return &Share{}
	}
	return &Share{memory: m, remainingWait: m.maxWait, owners: owners}
}

// exhaustedPool returns the first pool of the share that is short or has no room for more bytes; nil if all pools have room.
func (s *Share) exhaustedPool(bytes int64, exhausted map[*pool]bool) *pool {
	for _, p := range s.pools {
		if exhausted[p] || !p.canGrant(s, bytes) {
			return p
		}
	}
	return nil
}

// compare orders waiting shares: holders first, because they release bytes once they can continue, then by age.
func (s *Share) compare(other *Share) int {
	if hasBytes := s.used > 0; hasBytes != (other.used > 0) {
		if hasBytes {
			return -1
		}
		return 1
	}
	return cmp.Compare(s.age, other.age)
}

// Grow adds bytes. If it must wait, it waits for the maximum that the share may still need, so that it waits only once. It
// waits until ctx ends or the patience of the memory, in total for the share, is exhausted. It returns [ErrBusy],
// [ErrExceedsMemory] or the cause of ctx's end.
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

// ShrinkTo releases the unused bytes of the share, and all bytes beyond the given number.
func (s *Share) ShrinkTo(bytes int64) {
	if s.memory == nil {
		return
	}
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	s.memory.shrink(s, bytes)
}

// Release releases all bytes permanently. A later Grow, for example by a handler that is still writing, fails.
func (s *Share) Release() {
	if s.memory == nil {
		return
	}
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	s.memory.release(s)
}

// Owner is a client, a person or a network. All shares of an owner together get a limited part of the memory.
type Owner struct {
	kind, issuer, id string
	divisor          int64 // divisor of the memory's size
}

// Part of the memory for an owner. A person's part is half of a client's, so that one person cannot use up the part that a
// client's other users need.
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
