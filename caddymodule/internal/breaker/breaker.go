// Package breaker stands between a gateway and a store elsewhere, which may go away or become
// slow ([Breaker], a circuit breaker). Requests then fail at once instead of piling up, and
// the store is asked in the background until it answers:
//
//	up ── several calls in a row are not answered ──► down: calls fail at once
//	up ◄──────────── a probe is answered ──────────── down: one probe at a time
//
// It also measures each call, and logs when the store goes and when it is back.
//
// Why not sony/gobreaker: there, a request is the probe and waits for the store's timeout (of 1 s, nine requests in an outage
// of 10 s; here none), and limits, causes and times of outages, and calls that their callers gave up would remain here.
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
	maxFailures = 3                      // in a row, until the store is down; a lone one may be of the network
	probePause  = 250 * time.Millisecond // between the calls to a store that is down

	// MaxCalls is the limit of calls under way. Only a store that is slow gets there: 1000 that
	// take 10 ms each are 100,000 per second.
	MaxCalls = 1000
)

// An Outcome is how a call ended.
type Outcome string

// The outcomes. What a [store.Store] answers by an error, such as that an entry is not there,
// is an answer too.
const (
	Answered    Outcome = "answered"
	Full        Outcome = "full"        // [store.ErrFull]
	Unavailable Outcome = "unavailable" // no answer in time
	Rejected    Outcome = "rejected"    // not asked: the store is down, or has too many calls
	Failed      Outcome = "failed"      // anything else
)

// Outcomes are all of them.
var Outcomes = []Outcome{Answered, Full, Unavailable, Rejected, Failed}

// Operations are the names of the operations that are measured.
var Operations = []string{"get", "put", "add", "swap", "take", "append", "delete", "list", "step"}

// Breaker is a shared store that fails fast. [New] makes one.
type Breaker struct {
	store.Singly

	shared  store.Shared
	logger  *slog.Logger
	observe Observe

	mu       sync.Mutex
	calls    int // under way
	failures int // in a row
	down     bool
	outage   outage // the row of failures that lasts, or the last one
	last     store.Outage
	probing  bool
	probed   time.Time
}

// Observe gets each call: its context, one of [Operations], how it ended, and how long it took.
type Observe func(ctx context.Context, operation string, outcome Outcome, took time.Duration)

// New returns a breaker for a store. The logger gets when the store goes, and when it is back.
func New(s store.Shared, logger *slog.Logger, observe Observe) *Breaker {
	b := &Breaker{shared: s, logger: logger, observe: observe}
	b.Singly = func(ctx context.Context, calls ...*store.Call) error {
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

// Now implements [store.Shared].
func (b *Breaker) Now() time.Time { return b.shared.Now() }

// outage is a row of failures.
type outage struct {
	began time.Time // the first failure
	cause error     // of the last before the store was down
}

// call makes a call, unless it would only wait.
func (b *Breaker) call(ctx context.Context, operation string, call func() error) error {
	if err := b.enter(); err != nil {
		b.observe(ctx, operation, Rejected, 0)
		return err
	}
	began := time.Now()
	err := call()
	b.leave(ctx, err)
	b.observe(ctx, operation, outcomeOf(err), time.Since(began))
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
		return Answered
	}
	return Failed
}

// enter begins a call, or refuses it.
func (b *Breaker) enter() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.down:
		if b.mayProbe() {
			go b.probe()
		}
		return b.refusal()
	case b.calls >= MaxCalls:
		return fmt.Errorf("%w: %d calls wait for it", store.ErrUnavailable, b.calls)
	}
	b.calls++
	return nil
}

// refusal is what a store that is down is not asked for. It requires the lock.
func (b *Breaker) refusal() error {
	if store.CauseOf(b.outage.cause) != store.CauseUnavailable {
		return b.outage.cause
	}
	why := strings.TrimPrefix(b.outage.cause.Error(), store.ErrUnavailable.Error()+": ")
	return fmt.Errorf("%w: it has not answered for %v: %s", store.ErrUnavailable, time.Since(b.outage.began).Round(time.Millisecond), why)
}

// mayProbe reports whether the caller should probe. It requires the lock.
func (b *Breaker) mayProbe() bool {
	if !b.down || b.probing || time.Since(b.probed) < probePause {
		return false
	}
	b.probing, b.probed = true, time.Now()
	b.calls++
	return true
}

// LastOutage returns the last outage that is over; zero if there was none.
func (b *Breaker) LastOutage() store.Outage {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.last
}

// Try tries the store ([store.Try]), unless it is down.
func (b *Breaker) Try(ctx context.Context) error {
	return b.call(ctx, "step", func() error { return store.Try(ctx, b.shared) })
}

// try makes a change that nobody reads, so a store that only reads is not back, and one that is full is.
func (b *Breaker) try(ctx context.Context) error {
	if own, ok := b.shared.(interface {
		Try(ctx context.Context) error
	}); ok {
		return own.Try(ctx)
	}
	return b.shared.Do(ctx, &store.Call{Op: store.Delete, Key: "check:"})
}

// probe finds out whether the store is back. No request waits for it.
func (b *Breaker) probe() {
	ctx := context.Background() // the store gives up by itself
	began := time.Now()
	err := b.try(ctx)
	b.mu.Lock()
	b.probing = false
	if b.down && outcomeOf(err) != Unavailable {
		if store.CauseOf(b.outage.cause) == store.CauseUnavailable {
			b.logger.InfoContext(ctx, "the store is back", "after", time.Since(b.outage.began).Round(time.Millisecond))
		}
		b.down, b.last = false, store.Outage{Began: b.outage.began, Over: time.Now()}
	}
	b.mu.Unlock()
	b.leave(ctx, err)
	b.observe(ctx, "delete", outcomeOf(err), time.Since(began))
}

// leave ends a call, and judges by it whether the store is there. A call that its caller gave
// up says nothing.
func (b *Breaker) leave(ctx context.Context, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls--
	switch gaveUp := ctx.Err() != nil; {
	case outcomeOf(err) != Unavailable:
		if !gaveUp || outcomeOf(err) != Failed {
			b.answered()
		}
	case !gaveUp:
		b.failed(ctx, err)
	}
}

// answered ends a row of failures. That a store which is down has answered a call from before
// says little: it may be one that reads.
func (b *Breaker) answered() {
	if !b.down {
		b.failures = 0
	}
}

func (b *Breaker) failed(ctx context.Context, err error) {
	if b.failures++; b.failures == 1 {
		b.outage.began = time.Now()
	}
	if !b.down {
		b.outage.cause = err
	}
	if b.failures < maxFailures || b.down {
		return
	}
	b.down, b.probed = true, time.Now()
	if store.CauseOf(err) != store.CauseUnavailable {
		return // whoever tries the store logs it
	}
	b.logger.ErrorContext(ctx, "the store cannot be reached: what needs it is answered 503 until it is back", "error", err)
}

// Follow implements [store.Shared]. An update is a reason to ask the store whether it is
// back, before a request does. No update is one to try it: an outage is noticed, and
// logged, though nobody asks. The error is [store.ErrUnavailable] if it is one.
func (b *Breaker) Follow(ctx context.Context, tell func(store.Update)) error {
	err := b.shared.Follow(ctx, func(u store.Update) {
		tell(u)
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
	if tried := b.Try(ctx); outcomeOf(tried) != Unavailable {
		return fmt.Errorf("the store answers, but tells of no changes: %s", err.Error())
	}
	return err
}

var _ store.Shared = (*Breaker)(nil)
