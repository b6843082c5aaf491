// Package fairmemory limits the memory that all requests use together, and gives each client and each person a share. Older
// requests have priority.
//
//	Share.Grow ── larger than the whole memory ──► ErrTooMuch
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

// Places is the maximum number of shares that wait for their first bytes.
const Places = 1000

var (
	// ErrBusy is returned while other requests use the memory. A retry may succeed.
	ErrBusy = errors.New("too much memory is in use")
	// ErrTooMuch is returned if a share would be larger than the whole memory.
	ErrTooMuch = errors.New("more memory than there is")
)

// Memory is an amount of memory for shares. Create one with [New]. It is safe for concurrent use. A nil Memory is unlimited.
type Memory struct {
	patience time.Duration

	mu      sync.Mutex
	all     pool
	owned   map[Owner]*pool // pools of the owners that use memory
	begun   uint64          // number of shares that have grown so far; the age of the latest
	waiting []*waiter       // shares that hold bytes first, then by age
}

// pool is the memory of a group of shares: the whole memory, or an owner's part.
type pool struct {
	size, held int64
	holders    int // shares with bytes
	shares     int // shares that have grown and are not released
}

// hasRoom reports whether a share may have more bytes. The only holder of an owner may exceed the owner's part, so that a small
// memory suffices for any single request.
func (p *pool) hasRoom(s *Share, bytes int64) bool {
	return p.held == s.held || bytes <= p.size-p.held
}

// waiter is a share that waits to grow.
type waiter struct {
	share *Share
	bytes int64
	ahead int64      // part of bytes that is needed later
	lacks *pool      // pool without room, or with an earlier waiter
	done  chan error // receives the single result without blocking
}

// New returns a memory of a size in bytes. Patience is the maximum total waiting time of a share.
func New(size int64, patience time.Duration) *Memory {
	return &Memory{patience: patience, all: pool{size: size}, owned: map[Owner]*pool{}}
}

// InUse returns the number of bytes that all shares hold.
func (m *Memory) InUse() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.all.held
}

// Size returns the size in bytes.
func (m *Memory) Size() int64 { return m.all.size }

// take gives a share more bytes, or makes it wait for the maximum that it may need.
func (m *Memory) take(s *Share, bytes, most int64) (*waiter, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s.released {
		return nil, ErrBusy
	}
	if s.age == 0 {
		m.begin(s)
	}
	missing := bytes - s.ahead
	switch {
	case missing > m.all.size-s.held:
		return nil, ErrTooMuch
	case missing <= 0:
		s.ahead -= bytes
		return nil, nil
	case m.mayGrow(s, missing):
		m.give(s, missing, 0)
		return nil, nil
	case s.held == 0 && m.isCrowded(s):
		return nil, ErrBusy
	}
	ahead := max(0, min(most-bytes, m.all.size-s.held-missing))
	return m.wait(&waiter{share: s, bytes: missing + ahead, ahead: ahead, done: make(chan error, 1)}), nil
}

// begin sets the age and the pools of a share.
func (m *Memory) begin(s *Share) {
	m.begun++
	s.age = m.begun
	for _, owner := range s.owners {
		p := m.owned[owner]
		if p == nil {
			p = &pool{size: m.all.size / owner.divisor}
			m.owned[owner] = p
		}
		p.shares++
		s.pools = append(s.pools, p)
	}
	s.pools = append(s.pools, &m.all)
}

// mayGrow reports whether all pools of a share have room, and no preceding waiter lacks one of them.
func (m *Memory) mayGrow(s *Share, bytes int64) bool {
	for _, w := range m.waiting {
		if s.compare(w.share) < 0 {
			break
		}
		if slices.Contains(s.pools, w.lacks) {
			return false
		}
	}
	return s.lacks(bytes, nil) == nil
}

// isCrowded reports whether a share without bytes may not wait. The waiting shares of a client may occupy as many places as
// remain free, those of a person half as many.
func (m *Memory) isCrowded(s *Share) bool {
	free := Places - len(m.waiting)
	for i, owner := range s.owners {
		if taken := m.waitersOf(s.pools[i]); taken*int(owner.divisor/clientDivisor) >= free {
			return true
		}
	}
	return free <= 0
}

func (m *Memory) waitersOf(p *pool) (n int) {
	for _, w := range m.waiting {
		if slices.Contains(w.share.pools, p) {
			n++
		}
	}
	return n
}

// wait inserts a waiter after the shares that precede it.
func (m *Memory) wait(w *waiter) *waiter {
	at, _ := slices.BinarySearchFunc(m.waiting, w.share, func(w *waiter, s *Share) int { return w.share.compare(s) })
	m.waiting = slices.Insert(m.waiting, at, w)
	m.settle()
	return w
}

// give gives a share bytes, including ahead bytes that are needed later.
func (m *Memory) give(s *Share, bytes, ahead int64) {
	for _, p := range s.pools {
		if s.held == 0 && bytes > 0 {
			p.holders++
		}
		p.held += bytes
	}
	s.held += bytes
	s.ahead = ahead
}

// shrink takes back the bytes of a share beyond a size, and its unused bytes.
func (m *Memory) shrink(s *Share, to int64) {
	if to = min(to, s.held-s.ahead); to == s.held {
		return
	}
	for _, p := range s.pools {
		if p.held -= s.held - to; to == 0 {
			p.holders--
		}
	}
	s.held, s.ahead = to, 0
	m.settle()
}

// settle grants waiting shares in order, as long as their pools have room. A share never overtakes one that waits for the same
// pool, to prevent starvation of large shares. Shares of other owners overtake a share if its owner's part is exhausted. In a
// deadlock of holders, the youngest is rejected.
func (m *Memory) settle() {
	if len(m.waiting) == 0 {
		return
	}
	short := map[*pool]bool{}
	m.waiting = slices.DeleteFunc(m.waiting, func(w *waiter) bool {
		if w.lacks = w.share.lacks(w.bytes, short); w.lacks != nil {
			short[w.lacks] = true
			return false
		}
		m.give(w.share, w.bytes, w.ahead)
		w.done <- nil
		return true
	})
	if w := m.deadlocked(); w != nil {
		m.dismiss(slices.Index(m.waiting, w), ErrBusy)
	}
}

// deadlocked returns the youngest holder in a deadlock, or nil. A waiter can continue if a holder of the pool that it lacks is
// not waiting, or can itself continue.
func (m *Memory) deadlocked() *waiter {
	stuck, idle := slices.Clone(m.waiting), map[*pool]int{}
	for _, w := range stuck {
		w.count(idle, 1)
	}
	for n := -1; n != len(stuck); {
		n = len(stuck)
		stuck = slices.DeleteFunc(stuck, func(w *waiter) bool {
			if idle[w.lacks] == w.lacks.holders {
				return false
			}
			w.count(idle, -1)
			return true
		})
	}
	for _, w := range slices.Backward(stuck) {
		if w.share.held > 0 {
			return w
		}
	}
	return nil
}

// count adds n to the number of holders in each pool with bytes that a waiter holds.
func (w *waiter) count(holders map[*pool]int, n int) {
	if w.share.held > 0 {
		for _, p := range w.share.pools {
			holders[p] += n
		}
	}
}

// dismiss removes a waiter and sends it a result.
func (m *Memory) dismiss(at int, result error) {
	m.waiting[at].done <- result
	m.waiting = slices.Delete(m.waiting, at, at+1)
}

// abandon removes a waiter that gives up, unless it already has a result.
func (m *Memory) abandon(w *waiter, cause error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if at := slices.Index(m.waiting, w); at >= 0 {
		m.dismiss(at, cause)
		m.settle()
	}
	return <-w.done
}

// release takes back all bytes of a share, and ends its wait.
func (m *Memory) release(s *Share) {
	s.released = true
	if at := slices.IndexFunc(m.waiting, func(w *waiter) bool { return w.share == s }); at >= 0 {
		m.dismiss(at, ErrBusy)
		m.settle()
	}
	m.shrink(s, 0)
	for i := range min(len(s.owners), len(s.pools)) {
		if s.pools[i].shares--; s.pools[i].shares == 0 {
			delete(m.owned, s.owners[i])
		}
	}
	s.pools = nil
}

// Share is the part of a [Memory] that one request uses. Create one with [Memory.Share], and release it. While it grows, only
// Release may be called.
type Share struct {
	of       *Memory       // nil: unlimited
	patience time.Duration // remaining
	owners   []Owner

	// Guarded by the memory's mutex.
	pools    []*pool // of the owners, then of all; nil before it grows
	age      uint64  // 1 for the first share that grew
	held     int64
	ahead    int64 // part of held that is not in use yet
	released bool
}

// Share returns an empty share that counts toward its owners' parts. Without owners, only the size of the memory limits it.
func (m *Memory) Share(owners ...Owner) *Share {
	if m == nil {
		return &Share{}
	}
	return &Share{of: m, patience: m.patience, owners: owners}
}

// lacks returns the first pool of the share that is short or has no room for more bytes; nil if all pools have room.
func (s *Share) lacks(bytes int64, short map[*pool]bool) *pool {
	for _, p := range s.pools {
		if short[p] || !p.hasRoom(s, bytes) {
			return p
		}
	}
	return nil
}

// compare orders waiting shares: holders first, because they release bytes once they can continue, then by age.
func (s *Share) compare(other *Share) int {
	if holds := s.held > 0; holds != (other.held > 0) {
		if holds {
			return -1
		}
		return 1
	}
	return cmp.Compare(s.age, other.age)
}

// Grow adds bytes. If it must wait, it waits for the maximum that the share may still need, so that it waits only once. It
// waits until ctx ends or the patience of the memory, in total for the share, is exhausted. It returns [ErrBusy], [ErrTooMuch]
// or the cause of ctx's end.
func (s *Share) Grow(ctx context.Context, bytes, most int64) error {
	if s.of == nil {
		return nil
	}
	w, err := s.of.take(s, bytes, most)
	if w == nil {
		return err
	}
	start := time.Now()
	defer func() { s.patience -= time.Since(start) }()
	ctx, cancel := context.WithTimeoutCause(ctx, s.patience, ErrBusy)
	defer cancel()
	select {
	case err := <-w.done:
		return err
	case <-ctx.Done():
		return s.of.abandon(w, context.Cause(ctx))
	}
}

// InUse returns the number of bytes that the share uses; 0 if the memory is unlimited.
func (s *Share) InUse() int64 {
	if s.of == nil {
		return 0
	}
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	return s.held - s.ahead
}

// ShrinkTo releases the unused bytes of the share, and all bytes beyond the given number.
func (s *Share) ShrinkTo(bytes int64) {
	if s.of == nil {
		return
	}
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	s.of.shrink(s, bytes)
}

// Release releases all bytes permanently. A later Grow, for example by a handler that is still writing, fails.
func (s *Share) Release() {
	if s.of == nil {
		return
	}
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	s.of.release(s)
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
