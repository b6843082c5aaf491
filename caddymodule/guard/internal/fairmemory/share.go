package fairmemory

import (
	"context"
	"time"
)

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
