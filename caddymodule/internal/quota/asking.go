package quota

import (
	"context"
	"time"
)

const (
	askTimeout = time.Second // that a request waits for the store, once
	askPause   = time.Second // until a store is asked again that did not answer, or that has nothing left
)

// ask leases what a request costs that was counted here. If the store does not answer in time, the request is let in.
func (s *Set) ask(ctx context.Context, l *limit, h *holder, cost int, at standing) standing {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTimeout) // who leaves does not escape
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

// settle notes what came of asking.
func (s *Set) settle(l *limit, h *holder, cost int, at standing, b borrowed, err error) standing {
	h.mu.Lock()
	now := s.counts.now()
	e := &h.lease
	switch {
	case err != nil:
		e.left -= cost // told later
		e.away = now + int64(askPause)
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

// endLater gives back what is not used by the end of a lease. It requires the lock.
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
		_ = s.shared.giveBack(ctx, l, h, unused) // or it counts as used, until the window has passed
	}
}
