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
