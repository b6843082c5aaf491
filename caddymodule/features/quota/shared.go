package quota

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

const maxRounds = 20 // attempts while other gateways win the race

// Shared is the store in which several gateways count together.
type Shared struct {
	Store store.Store // contains an entry for each holder
	Keys  MAC         // the same at all gateways: a reader of the store cannot find networks by trying all of them
}

// MAC computes keyed hashes.
type MAC interface {
	// MAC returns the hash of a text.
	MAC(ctx context.Context, text string) ([]byte, error)
}

// borrowed is the answer of the store to a request for quota.
type borrowed struct {
	extra int
	told  int           // earlier usage, reported with this step
	free  int           // remaining quota in the store
	wait  time.Duration // time until enough remains; 0 if enough remained
}

var errBusy = errors.New("too many conflicting changes by other gateways")

// borrow takes the cost of a request, the unreported usage and, if possible, more from the store.
func (s *Shared) borrow(ctx context.Context, l *limit, h *holder, cost, owed, step int) (b borrowed, err error) {
	err = s.change(ctx, l, h, func(w *window, now int64) (again bool) {
		b.free = max(0, l.Limit-w.sum)
		if b.wait = 0; cost > b.free {
			b.wait = w.wait(l.shared, now, cost-b.free)
			return false
		}
		b.free -= min(cost+owed, b.free)
		b.extra = min(step, l.share(b.free))
		w.add(l.shared, now, min(cost+owed, l.Limit-w.sum)+b.extra)
		b.free -= b.extra
		return true
	})
	return b, err
}

func (s *Shared) giveBack(ctx context.Context, l *limit, h *holder, unused int) error {
	return s.change(ctx, l, h, func(w *window, _ int64) bool {
		w.giveBack(unused)
		return true
	})
}

// change updates the entry of a holder. It takes one round trip if no other gateway has changed the entry since it was last seen.
// If alter rejects a change, this counts only after reading the current entry.
func (s *Shared) change(ctx context.Context, l *limit, h *holder, alter func(w *window, now int64) bool) error {
	sum, err := s.Keys.MAC(ctx, "quota\x00"+string(h.key[:]))
	if err != nil {
		return err
	}
	key, e := "quota:"+base64.RawURLEncoding.EncodeToString(sum), &h.lease
	for round := range maxRounds {
		read := round > 0 || e.raced
		if read {
			values, err := store.Values(ctx, s.Store, key)
			if err != nil {
				return err
			}
			e.raced, e.seen = e.raced && !bytes.Equal(e.seen, values[0]), values[0]
		}
		value, err := altered(e.seen, l, store.Now(s.Store).UnixNano(), alter)
		switch {
		case err != nil:
			return err
		case value == nil && read:
			return nil
		case value == nil:
			continue
		}
		if err = s.Store.Do(ctx, store.Replacing(key, e.seen, value, time.Duration(l.Window)+2*l.shared.part)); err == nil {
			e.seen = value
			return nil
		}
		if e.raced = store.IsConflict(err); !e.raced {
			return err
		}
	}
	return errBusy
}

// altered returns the new value of an entry; nil if alter rejects the change.
func altered(held []byte, l *limit, now int64, alter func(w *window, now int64) bool) ([]byte, error) {
	w, err := decode(held)
	if err != nil {
		return nil, fmt.Errorf("the quota %s: %w", l.Name, err)
	}
	w.expire(l.shared, now)
	if !alter(&w, now) {
		return nil, nil
	}
	return w.appendTo([]byte{}), nil
}

// lease is the quota that a gateway may admit without a call to the store.
type lease struct {
	left  int // negative: usage not reported to the store
	step  int // size of the last lease beyond the need
	free  int // remaining quota in the store after the last lease
	asked int64
	away  int64 // end of the pause after an unanswered call

	refusedCost        int   // cost of the request that the store refused
	refusedAt, retryAt int64 // end of the refusal's validity, and time of sufficient quota

	turn  chan struct{} // semaphore for calls to the store; guards the fields below
	seen  []byte        // last known entry
	raced bool          // another gateway has changed the entry
	end   *time.Timer
}

// covers uses the lease or, while enough quota remains, unreported usage. It reports whether this covers the cost.
func (e *lease) covers(cost int, l *limit, now int64) bool {
	most := l.Limit / untold
	if e.asked != 0 && e.free < l.Limit/leaseShare {
		most = 0
	}
	if e.left-cost < -most && now >= e.away {
		return false
	}
	e.left -= cost
	return true
}

// forget resets the lease of a holder without usage in the window: leased and unreported quota is as old.
func (e *lease) forget() { e.left, e.asked = 0, 0 }

// limits caps a standing's remaining quota at the value that the store recently reported.
func (e *lease) limits(at standing, l *limit, now int64) standing {
	if e.asked != 0 && now-e.asked <= int64(l.leaseTime()) {
		at.left = max(0, min(at.left, e.free+max(e.left, 0)))
	}
	return at
}

// refuses returns the wait for a request that the store would refuse, as known from its last refusal, or 0.
func (e *lease) refuses(cost int, now int64) time.Duration {
	if now >= e.refusedAt || cost < e.refusedCost {
		return 0
	}
	return time.Duration(e.retryAt - now)
}

// next returns the size of the next lease beyond the need: doubled as long as leases are used up before they end.
func (e *lease) next(l *limit, now int64) int {
	if e.asked == 0 || now-e.asked > int64(l.leaseTime()) {
		return 0
	}
	return max(1, 2*e.step)
}
