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
	size     int64
	patience time.Duration

	mu      sync.Mutex
	free    int64
	begun   uint64    // shares, so far
	holders int       // shares that hold some bytes
	waiting []*waiter // the oldest share first
}

// waiter is a share that waits to grow.
type waiter struct {
	share *Share
	bytes int64
	ahead int64      // of these: needed only later
	done  chan error // takes the one result without blocking
}

// New returns a memory of a size in bytes. A share waits for more of it as long as the patience goes, in all.
func New(size int64, patience time.Duration) *Memory {
	return &Memory{size: size, free: size, patience: patience}
}

// Held is how many bytes all shares hold.
func (m *Memory) Held() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.size - m.free
}

// take gives a share more bytes, or has it wait for the most that it may need.
func (m *Memory) take(s *Share, bytes, most int64) (*waiter, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s.age == 0 {
		m.begun++
		s.age = m.begun
	}
	missing := bytes - s.ahead
	switch {
	case s.released, s.held == 0 && len(m.waiting) >= Places:
		return nil, ErrBusy
	case missing > m.size-s.held:
		return nil, ErrTooMuch
	case missing <= 0:
		s.ahead -= bytes
		return nil, nil
	case missing <= m.free && (len(m.waiting) == 0 || s.age < m.waiting[0].share.age):
		m.give(s, missing, 0)
		return nil, nil
	}
	ahead := max(0, min(most-bytes, m.size-s.held-missing))
	return m.wait(&waiter{share: s, bytes: missing + ahead, ahead: ahead, done: make(chan error, 1)}), nil
}

// wait has somebody wait behind those who are older.
func (m *Memory) wait(w *waiter) *waiter {
	at, _ := slices.BinarySearchFunc(m.waiting, w.share.age, func(w *waiter, age uint64) int { return cmp.Compare(w.share.age, age) })
	m.waiting = slices.Insert(m.waiting, at, w)
	m.settle()
	return w
}

// give gives a share bytes, some of which it will need only later.
func (m *Memory) give(s *Share, bytes, ahead int64) {
	if s.held == 0 && bytes > 0 {
		m.holders++
	}
	s.held += bytes
	s.ahead = ahead
	m.free -= bytes
}

// shrink takes back what a share holds beyond a size, or does not use.
func (m *Memory) shrink(s *Share, to int64) {
	if to = min(to, s.held-s.ahead); to == s.held {
		return
	}
	m.free += s.held - to
	if s.held, s.ahead = to, 0; to == 0 {
		m.holders--
	}
	m.settle()
}

// settle lets those grow for whom enough is free, the oldest first. None overtakes another, or a large one would wait
// for ever. If all who hold something wait, nothing would be given back: then the youngest of them is refused.
func (m *Memory) settle() {
	for len(m.waiting) > 0 && m.waiting[0].bytes <= m.free {
		first := m.waiting[0]
		m.give(first.share, first.bytes, first.ahead)
		m.dismiss(0, nil)
	}
	holding, youngest := 0, 0
	for at, w := range m.waiting {
		if w.share.held > 0 {
			holding, youngest = holding+1, at
		}
	}
	if holding > 0 && holding == m.holders {
		m.dismiss(youngest, ErrBusy)
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
}

// Share is what one request holds of a [Memory]. Make one with [Memory.Share], and release it. Only Release may be called
// while it grows.
type Share struct {
	of       *Memory       // nil: there is no bound
	patience time.Duration // left

	// The memory's mutex guards what follows.
	age      uint64 // 1 for the first that grew
	held     int64
	ahead    int64 // of what is held: not in use yet
	released bool
}

// Share returns an empty share.
func (m *Memory) Share() *Share {
	if m == nil {
		return &Share{}
	}
	return &Share{of: m, patience: m.patience}
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
