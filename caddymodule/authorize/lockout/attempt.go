package lockout

import (
	"context"
	"errors"
	"net/http"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fairqueue"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// Attempt calls check, or returns a [WaitError] if one of the counters must wait. The error
// wrong counts as a failure; any other is not counted.
func (l *Limiter) Attempt(ctx context.Context, counters []counter, wrong error, check func() error) (err error) {
	if l.Off {
		return check()
	}
	end, err := l.reserve(ctx, counters)
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

// settle counts an attempt that ended with err, which is returned, or refuses it. It need
// not be reserved: it is admitted and counted in one step.
func (l *Limiter) settle(ctx context.Context, counters []counter, err error) error {
	if l.Off {
		return err
	}
	refused := l.change(ctx, counters, func(c counter, t *tally) error {
		now := store.Now(l.Store)
		if err := l.wait(t, now); err != nil {
			return err
		}
		t.count(c, outcomeOf(err, err), l.MaxWait, now)
		return nil
	})
	if errors.Is(refused, store.ErrFull) { // filling the store must not disable the limit
		l.notCounted(ctx, outcomeOf(err, err), refused)
		return err
	}
	if refused != nil {
		return QueueError(refused)
	}
	return err
}

// AttemptSecret counts an attempt that ended with err, and returns err, or a refusal after
// too many failures. They are counted by network, for this client or registration and for
// all, so that failures elsewhere stop nobody. Nor do those of the same network stop a
// secret that cannot be guessed. A success cancels its own client's failures, not the
// network's.
func (l *Limiter) AttemptSecret(r *http.Request, whose string, err error, guessable bool) error {
	if err == nil && !guessable {
		return nil
	}
	counters, failed := l.secretCounters(r.Context(), whose)
	if failed != nil {
		return failed
	}
	err = l.settle(r.Context(), counters, err)
	if wait, ok := errors.AsType[*WaitError](err); ok {
		err = &oauth2.Error{
			Code: "temporarily_unavailable", Status: http.StatusTooManyRequests,
			Description: "too many wrong secrets came from your network", Err: wait,
		}
		l.Trail.RecordRefusal(r, audit.Event{Kind: audit.Lockout, Err: err})
	}
	return err
}

func (l *Limiter) secretCounters(ctx context.Context, whose string) ([]counter, error) {
	network := fairqueue.Network(audit.ClientAddress(ctx))
	name := whose + "\x00" + network
	pair, err1 := l.newCounter(ctx, secret, name, name, l.Failures)
	address, err2 := l.newCounter(ctx, secret+"-address", network, "", l.AddressFailures)
	return []counter{pair, address}, errors.Join(err1, err2)
}
