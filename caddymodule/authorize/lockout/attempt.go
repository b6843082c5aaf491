package lockout

import (
	"context"
	"errors"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// Attempt calls check, or returns a [WaitError] if one of the counters must wait. The error
// wrong counts as a failure; any other is not counted.
func (l *Limiter) Attempt(ctx context.Context, counters []counter, wrong error, check func() error) (err error) {
	if l.Off {
		return check()
	}
	begin := l.begin
	if l.isShared() {
		begin = l.reserve
	}
	end, err := begin(ctx, counters)
	if err != nil {
		return err
	}
	outcome := undecided
	defer func() {
		if late := end(outcome); late != nil {
			err = late
		}
	}()
	err = check()
	outcome = outcomeOf(err, wrong)
	return err
}

func outcomeOf(err, wrong error) outcome {
	switch {
	case err == nil:
		return succeeded
	case errors.Is(err, wrong):
		return failed
	}
	return undecided
}

// settle counts an attempt that ended with err, which is returned, or refuses it. Other
// gateways need not know of it before: it is admitted and counted in one step.
func (l *Limiter) settle(ctx context.Context, counters []counter, err error) error {
	if l.Off || !l.isShared() {
		return l.Attempt(ctx, counters, err, func() error { return err })
	}
	refused := l.change(ctx, counters, func(c counter, t *tally) error {
		now := store.Now(l.Store)
		if err := l.wait(t, now); err != nil {
			return err
		}
		t.count(c, outcomeOf(err, err), l.MaxWait, now)
		return nil
	})
	if refused != nil {
		return QueueError(refused)
	}
	return err
}
