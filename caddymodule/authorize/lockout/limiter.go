package lockout

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/browser"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// Limiter counts failed attempts in a [store.Store] and delays further ones. With a
// [store.Shared] one, several gateways allow no more attempts than one.
type Limiter struct {
	Policy
	Store   store.Store      // holds the counts
	Keys    keyring.Sealing  // name the counts
	Devices *browser.Devices // are counted apart
	Trail   *audit.Recorder  // records who must wait
	Logger  *slog.Logger     // gets what could not be counted

	stripes [64]stripe // of a store of this process
	shared  sharedTries

	// uncounted counts failures that could not be stored, for everybody together: a full
	// or broken store makes guessing slow, not free.
	mu        sync.Mutex
	uncounted tally
}

type outcome int // of an attempt

const (
	undecided outcome = iota // not made, or failed for another reason than a wrong secret
	succeeded
	failed
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

// isShared reports whether the store serves several gateways, and so has a clock for them.
func (l *Limiter) isShared() bool {
	_, shared := l.Store.(interface{ Now() time.Time })
	return shared
}

// wait is how long a counter must wait.
func (l *Limiter) wait(t *tally, now time.Time) error {
	if wait := max(t.wait(now), l.uncountedWait()); wait > 0 {
		return &WaitError{Wait: wait}
	}
	return nil
}

// notCounted notes an attempt whose outcome could not be stored.
func (l *Limiter) notCounted(ctx context.Context, o outcome, err error) {
	l.Logger.ErrorContext(ctx, "a try to sign in was not counted", "error", err)
	if o == failed {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.uncounted.fail("", l.Failures, l.MaxWait, time.Now())
	}
}

func (l *Limiter) uncountedWait() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.uncounted.wait(time.Now())
}
