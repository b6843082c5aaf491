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
	released bool
}

// Share returns an empty share.
func (m *Memory) Share() *Share {
	if m == nil {
		return &Share{}
	}
	return &Share{of: m, patience: m.patience}
}

// Grow adds bytes, and waits until they are free: as long as ctx allows and, with all that the share has waited before, the
// memory's patience. It fails with [ErrBusy], [ErrTooMuch] or the cause of ctx's end.
func (s *Share) Grow(ctx context.Context, bytes int64) error {
	if s.of == nil {
		return nil
	}
	w, err := s.of.take(s, bytes)
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

// Held is how many bytes the share holds; 0 if there is no bound.
func (s *Share) Held() int64 {
	if s.of == nil {
		return 0
	}
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	return s.held
}

// ShrinkTo gives back what the share holds beyond a number of bytes.
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
