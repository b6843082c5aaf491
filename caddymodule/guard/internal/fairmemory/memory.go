// Package fairmemory bounds the memory that all requests take together, and gives each client and each person a part of it.
// Requests that began earlier get it first.
//
//	Share.Grow ── more than there is in all ──► ErrTooMuch
//	   │ at once, if there is room for the person, the client and all, and nobody older waits for the same
//	   ▼
//	waits for the most it may need ── too long, or as the youngest of requests that all wait for each other ──► ErrBusy
//	   │ until others release some
//	   ▼
//	more bytes ──► Share.ShrinkTo, Share.Release
//
// A reader learns the length of an answer only while reading it, and so holds one part while waiting for the next. With
// golang.org/x/sync/semaphore all end up waiting for each other: of 20 readers of 16 MiB, in steps of 64 KiB of 128 MiB, all
// failed after their 10 s of patience. Here the youngest gives way to the oldest: 18 succeeded, all within 1.2 s.
//
// A client that reads its answers slowly holds them until it has them. It uses up its own part only: requests that wait for
// one owner's part are overtaken by those of others, and take no more than their part of the places.
package fairmemory

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// Places is how many shares may wait for their first bytes.
const Places = 1000

var (
	// ErrBusy is returned if others hold the memory, and may give it back later.
	ErrBusy = errors.New("too much memory is in use")
	// ErrTooMuch is returned if a share would be larger than the whole memory.
	ErrTooMuch = errors.New("more memory than there is")
)

// Memory is a number of bytes that shares are taken of. Make one with [New]. It is safe for concurrent use. Of a nil
// Memory, shares may grow without end.
type Memory struct {
	patience time.Duration

	mu      sync.Mutex
	all     pool
	owned   map[Owner]*pool // of owners with shares that have grown
	begun   uint64          // shares, so far
	waiting []*waiter       // shares that hold bytes first, and of these the oldest
}

// pool is memory that a group of shares has in common: all of it, or an owner's part.
type pool struct {
	size, held int64
	holders    int // shares that hold some bytes
	shares     int // shares that have grown and are not released
}

// hasRoom reports whether a share may have more bytes. An owner's only holder may exceed the owner's part, so that a small
// memory suffices for any single request.
func (p *pool) hasRoom(s *Share, bytes int64) bool {
	return p.held == s.held || bytes <= p.size-p.held
}

// waiter is a share that waits to grow.
type waiter struct {
	share *Share
	bytes int64
	ahead int64      // of these: needed only later
	lacks *pool      // without room for it, or with an earlier waiter
	done  chan error // takes the one result without blocking
}

// New returns a memory of a size in bytes. A share waits for more of it as long as the patience goes, in all.
func New(size int64, patience time.Duration) *Memory {
	return &Memory{patience: patience, all: pool{size: size}, owned: map[Owner]*pool{}}
}

// Held is how many bytes all shares hold.
func (m *Memory) Held() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.all.held
}

// Size is the size in bytes.
func (m *Memory) Size() int64 { return m.all.size }

// take gives a share more bytes, or has it wait for the most that it may need.
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

// begin gives a share its age and its pools.
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

// mayGrow reports whether all pools of a share have room, and no waiter that precedes the share lacks one of them.
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

// isCrowded reports whether a share without bytes may not wait. A client's shares may take as many places as they leave
// free, and a person's half as many.
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

// wait has a share wait behind those that precede it.
func (m *Memory) wait(w *waiter) *waiter {
	at, _ := slices.BinarySearchFunc(m.waiting, w.share, func(w *waiter, s *Share) int { return w.share.compare(s) })
	m.waiting = slices.Insert(m.waiting, at, w)
	m.settle()
	return w
}

// give gives a share bytes, some of which it will need only later.
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

// shrink takes back what a share holds beyond a size, or does not use.
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

// settle grants waiting shares, in order, as long as their pools have room. A share does not overtake one that waits for the
// same pool, or large shares would starve. Shares of other owners overtake one whose owner's part is used up. If holders wait
// for each other, so that none would release memory, the youngest is rejected.
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

// deadlocked returns the youngest of the holders that wait for each other; nil if there are none. A waiter can go on if a
// holder of the pool that it lacks does not wait, or can go on.
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

// count adds n to the number of holders in each pool that a waiter holds bytes of.
func (w *waiter) count(holders map[*pool]int, n int) {
	if w.share.held > 0 {
		for _, p := range w.share.pools {
			holders[p] += n
		}
	}
}

// dismiss ends the waiting of one.
func (m *Memory) dismiss(at int, result error) {
	m.waiting[at].done <- result
	m.waiting = slices.Delete(m.waiting, at, at+1)
}

// abandon ends the waiting of one that will not wait any longer, unless it has just ended.
func (m *Memory) abandon(w *waiter, cause error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if at := slices.Index(m.waiting, w); at >= 0 {
		m.dismiss(at, cause)
		m.settle()
	}
	return <-w.done
}

// release takes back all that a share holds, and ends its waiting.
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

// Share is what one request holds of a [Memory]. Make one with [Memory.Share], and release it. Only Release may be called
// while it grows.
type Share struct {
	of       *Memory       // nil: there is no bound
	patience time.Duration // left
	owners   []Owner

	// The memory's mutex guards what follows.
	pools    []*pool // of the owners, then of all; nil before it grows
	age      uint64  // 1 for the first that grew
	held     int64
	ahead    int64 // of what is held: not in use yet
	released bool
}

// Share returns an empty share that counts for its owners. Without owners, only the size of the memory bounds it.
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

// compare orders shares that wait: holders first, because they give something back once they can go on, then by age.
func (s *Share) compare(other *Share) int {
	if holds := s.held > 0; holds != (other.held > 0) {
		if holds {
			return -1
		}
		return 1
	}
	return cmp.Compare(s.age, other.age)
}

// Grow adds bytes. If it must wait for them, it waits for the most that the share may still need, so that it need not wait
// again. It waits as long as ctx allows and, with all that the share has waited before, the memory's patience. It fails with
// [ErrBusy], [ErrTooMuch] or the cause of ctx's end.
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

// Held is how many bytes the share has in use; 0 if there is no bound.
func (s *Share) Held() int64 {
	if s.of == nil {
		return 0
	}
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	return s.held - s.ahead
}

// ShrinkTo gives back what the share holds beyond a number of bytes, and what is not in use.
func (s *Share) ShrinkTo(bytes int64) {
	if s.of == nil {
		return
	}
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	s.of.shrink(s, bytes)
}

// Release gives back all, for good: the share does not grow any more, even if somebody still writes who was left behind.
func (s *Share) Release() {
	if s.of == nil {
		return
	}
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	s.of.release(s)
}

// Owner is a client, a person or a network. All shares of one owner together get at most a part of the memory.
type Owner struct {
	kind, issuer, id string
	divisor          int64 // of the memory's size
}

// An owner gets this part of the memory. A person's part is half of a client's, so that one person does not use up the part
// of the client that others use too.
const (
	clientDivisor = 2
	personDivisor = 2 * clientDivisor
)

// Client returns the client of an issuer's tokens, which gets at most half of the memory.
func Client(issuer, id string) Owner { return Owner{"client", issuer, id, clientDivisor} }

// Person returns the subject of an issuer's tokens, who gets at most a quarter of the memory with all clients together.
func Person(issuer, subject string) Owner { return Owner{"person", issuer, subject, personDivisor} }

// Network returns the network that requests without a token come from, which gets at most half of the memory.
func Network(network string) Owner { return Owner{"network", "", network, clientDivisor} }
