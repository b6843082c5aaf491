package replica

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// How long Run waits before it follows again: twice as long after each failure, and the
// shortest time again once following has worked for steadyAfter. Each start may read all
// entries.
const (
	minPause    = 100 * time.Millisecond
	maxPause    = 2 * time.Second
	steadyAfter = 10 * time.Second
)

// Run follows the store until ctx ends, and starts again when that fails.
func (r *Replica) Run(ctx context.Context) {
	var lost time.Time // zero: following
	pause := minPause
	for ctx.Err() == nil {
		began := time.Now()
		err := r.Follow(ctx, func(u store.Update) {
			r.hear(u)
			r.tell(u)
			if !lost.IsZero() {
				r.logger.InfoContext(ctx, "changes of other gateways are heard again", "after", time.Since(lost).Round(time.Millisecond))
				lost = time.Time{}
			}
		})
		if ctx.Err() != nil {
			return
		}
		if lost.IsZero() && !isUnavailable(err) { // of an outage its breaker logs
			lost = time.Now()
			r.logger.WarnContext(ctx, "changes of other gateways are not heard, trying again", "error", err)
		}
		if time.Since(began) > steadyAfter {
			pause = minPause
		}
		wait(ctx, pause/2+rand.N(pause/2)) // not all gateways at once
		pause = min(2*pause, maxPause)
	}
}

func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// hear makes the changes that the store announces.
func (r *Replica) hear(u store.Update) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now, heard := r.now(), int64(u.Heard.Sub(r.began))
	if u.Whole {
		r.mirror.reset(len(u.Changes))
		r.forgetAll()
	}
	for _, c := range u.Changes {
		if hasAnyPrefix(c.Key, r.mirrored) {
			r.mirror.put(c, r.began, now)
		}
		r.forget(c.Key)
	}
	r.mirror.sweep(sweptPerUpdate, now)
	r.changed.announced(heard)
	if r.mirror.whole && heard > r.heard {
		r.heard = heard
		r.refresh()
	}
}
