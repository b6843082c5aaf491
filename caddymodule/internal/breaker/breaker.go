// Package breaker implements a circuit breaker between a gateway and a remote store that may become unavailable or slow
// ([Breaker]). While the store is down, calls fail immediately instead of piling up, and background probes detect when the
// store is available again:
//
//	up ── several consecutive calls time out ──► down: calls fail immediately
//	up ◄──────────── a probe succeeds ────────── down: one probe at a time
//
// It also measures each call and logs the start and end of an outage.
//
// It is used instead of sony/gobreaker, which probes with a request that has to wait for the store's timeout (with a timeout of
// 1 s, nine requests waited in an outage of 10 s; here none). Limits, causes and times of outages, and abandoned calls would
// still have to be implemented here.
package breaker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

const (
	maxFailures   = 3                      // consecutive timeouts until the store is down; a single failure may be a network error
	probeInterval = 250 * time.Millisecond // interval between probes while the store is down

	// MaxCalls is the maximum number of concurrent calls. Only a slow store reaches it: 1,000 concurrent calls of 10 ms are
	// 100,000 calls per second.
	MaxCalls = 1000
)

// An Outcome is the result of a call.
type Outcome string

// Outcomes of a call. An error that a [store.Store] returns as a result, such as for a missing entry, is recorded as Responded.
const (
	Responded   Outcome = "answered"
	Full        Outcome = "full"        // [store.ErrFull]
	Unavailable Outcome = "unavailable" // no response before the timeout
	Rejected    Outcome = "rejected"    // not sent: the store is down, or too many calls are in progress
	Failed      Outcome = "failed"      // any other error
)

// Outcomes lists all outcomes.
var Outcomes = []Outcome{Responded, Full, Unavailable, Rejected, Failed}

// Operations lists the names of the measured operations.
var Operations = []string{"get", "put", "add", "swap", "take", "append", "delete", "list", "step"}

// Breaker wraps a shared store so that calls fail fast while the store is down. Use [New] to create one.
type Breaker struct {
	store.CallRunner

	shared  store.SharedStore
	logger  *slog.Logger
	observe Observe

	mu         sync.Mutex
	calls      int // number of running calls
	failures   int // number of consecutive failures
	isDown     bool
	outage     outage // current or most recent outage
	lastOutage store.Outage
	isProbing  bool
	lastProbe  time.Time
}

// Observe is called for each call with its context, the operation (one of [Operations]), the outcome and the duration.
type Observe func(ctx context.Context, operation string, outcome Outcome, duration time.Duration)

// New returns a breaker for a store. It logs the start and end of outages to logger.
func New(s store.SharedStore, logger *slog.Logger, observe Observe) *Breaker {
	b := &Breaker{shared: s, logger: logger, observe: observe}
	b.CallRunner = func(ctx context.Context, calls ...*store.Call) error {
		return b.call(ctx, strings.ToLower(calls[0].Op.String()), func() error { return s.Do(ctx, calls...) })
	}
	return b
}

// List implements [store.Store].
func (b *Breaker) List(ctx context.Context, prefix string) (keys []string, err error) {
	err = b.call(ctx, "list", func() error {
		keys, err = b.shared.List(ctx, prefix)
		return err
	})
	return keys, err
}

// Do implements [store.Store].
func (b *Breaker) Do(ctx context.Context, calls ...*store.Call) error {
	return b.call(ctx, "step", func() error { return b.shared.Do(ctx, calls...) })
}

// Now implements [store.SharedStore].
func (b *Breaker) Now() time.Time { return b.shared.Now() }

// outage is a period of consecutive failures.
type outage struct {
	startedAt time.Time // time of the first failure
	cause     error     // error of the last call before the store was down
}

// call calls the store unless it is down or has too many concurrent calls.
func (b *Breaker) call(ctx context.Context, operation string, call func() error) error {
	if err := b.startCall(); err != nil {
		b.observe(ctx, operation, Rejected, 0)
		return err
	}
	startedAt := time.Now()
	err := call()
	b.endCall(ctx, err)
	b.observe(ctx, operation, outcomeOf(err), time.Since(startedAt))
	return err
}

func outcomeOf(err error) Outcome {
	switch {
	case errors.Is(err, store.ErrUnavailable):
		return Unavailable
	case errors.Is(err, store.ErrFull):
		return Full
	case err == nil, errors.Is(err, store.ErrNotFound), errors.Is(err, store.ErrExists),
		errors.Is(err, store.ErrChanged), errors.Is(err, store.ErrTooLong):
		return Responded
	}
	return Failed
}

// startCall records the start of a call or returns an error if the call is rejected.
func (b *Breaker) startCall() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.isDown:
		if b.mayProbe() {
			go b.probe()
		}
		return b.unavailableError()
	case b.calls >= MaxCalls:
		return fmt.Errorf("%w: %d calls are already in progress", store.ErrUnavailable, b.calls)
	}
	b.calls++
	return nil
}

// unavailableError returns the error for calls while the store is down. The caller must hold the lock.
func (b *Breaker) unavailableError() error {
	if store.CauseOf(b.outage.cause) != store.CauseUnavailable {
		return b.outage.cause
	}
	why := strings.TrimPrefix(b.outage.cause.Error(), store.ErrUnavailable.Error()+": ")
	return fmt.Errorf("%w: no response for %v: %s", store.ErrUnavailable, time.Since(b.outage.startedAt).Round(time.Millisecond), why)
}

// mayProbe reports whether the caller should probe the store. The caller must hold the lock.
func (b *Breaker) mayProbe() bool {
	if !b.isDown || b.isProbing || time.Since(b.lastProbe) < probeInterval {
		return false
	}
	b.isProbing, b.lastProbe = true, time.Now()
	b.calls++
	return true
}

// LastOutage returns the last outage that has ended, or the zero value if no outage has ended.
func (b *Breaker) LastOutage() store.Outage {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lastOutage
}

// Probe checks the store ([store.Probe]), unless it is down.
func (b *Breaker) Probe(ctx context.Context) error {
	return b.call(ctx, "step", func() error { return store.Probe(ctx, b.shared) })
}

// probeStore makes a harmless change, so that a read-only store fails the probe and a full store passes it.
func (b *Breaker) probeStore(ctx context.Context) error {
	if own, ok := b.shared.(interface {
		Probe(ctx context.Context) error
	}); ok {
		return own.Probe(ctx)
	}
	return b.shared.Do(ctx, &store.Call{Op: store.Delete, Key: "check:"})
}

// probe checks whether the store is available again. Requests do not wait for it.
func (b *Breaker) probe() {
	ctx := context.Background() // the store has its own timeout
	startedAt := time.Now()
	err := b.probeStore(ctx)
	b.mu.Lock()
	b.isProbing = false
	if b.isDown && outcomeOf(err) != Unavailable {
		if store.CauseOf(b.outage.cause) == store.CauseUnavailable {
			b.logger.InfoContext(ctx, "store available again", "after", time.Since(b.outage.startedAt).Round(time.Millisecond))
		}
		b.isDown, b.lastOutage = false, store.Outage{StartedAt: b.outage.startedAt, EndedAt: time.Now()}
	}
	b.mu.Unlock()
	b.endCall(ctx, err)
	b.observe(ctx, "delete", outcomeOf(err), time.Since(startedAt))
}

// endCall records the end of a call and updates the state of the store. Calls canceled by their caller are ignored.
func (b *Breaker) endCall(ctx context.Context, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls--
	switch canceled := ctx.Err() != nil; {
	case outcomeOf(err) != Unavailable:
		if !canceled || outcomeOf(err) != Failed {
			b.recordSuccess()
		}
	case !canceled:
		b.recordFailure(ctx, err)
	}
}

// recordSuccess resets the consecutive failures. While the store is down, it ignores results of earlier calls, because the
// store may be read-only.
func (b *Breaker) recordSuccess() {
	if !b.isDown {
		b.failures = 0
	}
}

func (b *Breaker) recordFailure(ctx context.Context, err error) {
	if b.failures++; b.failures == 1 {
		b.outage.startedAt = time.Now()
	}
	if !b.isDown {
		b.outage.cause = err
	}
	if b.failures < maxFailures || b.isDown {
		return
	}
	b.isDown, b.lastProbe = true, time.Now()
	if store.CauseOf(err) != store.CauseUnavailable {
		return // the caller that probes the store logs this
	}
	b.logger.ErrorContext(ctx, "store unavailable; requests that need it get 503", "error", err)
}

// Subscribe implements [store.SharedStore]. If the store is down, an update triggers a probe, so that requests do not have to
// wait for the next probe. A failure triggers a check of the store, so that an outage is detected and logged even if there are
// no requests. During an outage, the error is [store.ErrUnavailable].
func (b *Breaker) Subscribe(ctx context.Context, notify func(store.Update)) error {
	err := b.shared.Subscribe(ctx, func(u store.Update) {
		notify(u)
		b.mu.Lock()
		may := b.mayProbe()
		b.mu.Unlock()
		if may {
			b.probe()
		}
	})
	if ctx.Err() != nil || store.CauseOf(err) != store.CauseUnavailable {
		return err
	}
	if probeErr := b.Probe(ctx); outcomeOf(probeErr) != Unavailable {
		return fmt.Errorf("store available, but subscribing to changes failed: %s", err.Error())
	}
	return err
}

var _ store.SharedStore = (*Breaker)(nil)
