package quota

import (
	"context"
	"net/http"
	"time"
)

// Set are the quotas of a configuration. Nil has none. It is safe for concurrent use.
type Set struct {
	by      map[By][]*limit
	counts  *Counts
	shared  *Shared
	refused func(name string)
}

// NewSet returns the set of some quotas, which continues the counts. Shared is where gateways count together; nil if this one counts
// alone. Refused gets the name of the quota by which a request is refused.
func NewSet(quotas []Quota, counts *Counts, shared *Shared, refused func(name string)) *Set {
	s := &Set{by: map[By][]*limit{}, counts: counts, shared: shared, refused: refused}
	for _, q := range quotas {
		s.by[q.By] = append(s.by[q.By], newLimit(q))
	}
	return s
}

// Counts reports whether there is a quota by a kind of holder.
func (s *Set) Counts(by By) bool { return s != nil && len(s.by[by]) > 0 }

// Take counts a request by all quotas of a kind of holder, and tells the client what is left of each. A [*Refusal] says which of
// them is used up: the request then counts by none of them.
func (s *Set) Take(ctx context.Context, to http.Header, by By, whose, what string) error {
	if !s.Counts(by) {
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

// Charge counts what a request turns out to hold, beside what it was let in for: it may use more than there is.
func (s *Set) Charge(by By, whose, what string) {
	if !s.Counts(by) {
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

// takeHere counts a request at this gateway, and says whether the store must be asked.
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
