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

const maxRounds = 20 // in which other gateways may be quicker

// Shared is where several gateways count together.
type Shared struct {
	Store store.Store // holds an entry for each holder
	Keys  MAC         // the same at all gateways: nobody who reads the store can tell networks by trying
}

// MAC makes a keyed hash.
type MAC interface {
	// MAC returns that of a text.
	MAC(ctx context.Context, text string) ([]byte, error)
}

// borrowed is what the store gave, or why it did not.
type borrowed struct {
	extra int
	told  int           // of what was used before
	free  int           // that is left there
	wait  time.Duration // until there is enough; 0 if there was
}

var errBusy = errors.New("other gateways were quicker each time")

// borrow takes from the store what a request costs, what was used before and not told, and more, as far as there is.
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

// change alters the entry of a holder in one round trip if no other gateway has done so since it was last seen. If alter leaves it
// as it is, that counts once it was given what is stored.
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
		if e.raced = store.Lost(err); !e.raced {
			return err
		}
	}
	return errBusy
}

// altered is what replaces an entry; nil if it stays.
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

// lease is what a holder may use without asking the store.
type lease struct {
	left  int // below 0: what was used, and the store was not told
	step  int // what was leased last, beyond what was needed
	free  int // what the store had left then
	asked int64
	away  int64 // until when the store is not asked, since it did not answer

	refusedCost        int   // which the store had not left
	refusedAt, retryAt int64 // until when that is known, and when there should be enough

	turn  chan struct{} // of who asks the store, for what follows
	seen  []byte        // what it held then
	raced bool          // another gateway had changed it
	end   *time.Timer
}

// covers uses what was leased, or what the store need not be told yet: while there is enough, as far as is known.
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

// forget begins anew for a holder who has used nothing for as long as the window: what was leased, or not told, is as old.
func (e *lease) forget() { e.left, e.asked = 0, 0 }

// limits is how a holder stands, given what the store had left when it was just asked.
func (e *lease) limits(at standing, l *limit, now int64) standing {
	if e.asked != 0 && now-e.asked <= int64(l.leaseTime()) {
		at.left = max(0, min(at.left, e.free+max(e.left, 0)))
	}
	return at
}

// refuses says how long a request must wait which the store would refuse, as far as that is known.
func (e *lease) refuses(cost int, now int64) time.Duration {
	if now >= e.refusedAt || cost < e.refusedCost {
		return 0
	}
	return time.Duration(e.retryAt - now)
}

// next is how much may be leased beyond what is needed: twice as much each time, while it is used up before it ends.
func (e *lease) next(l *limit, now int64) int {
	if e.asked == 0 || now-e.asked > int64(l.leaseTime()) {
		return 0
	}
	return max(1, 2*e.step)
}
