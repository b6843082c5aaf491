package authorize

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// Lockout slows down who guesses passwords, second factors or clients' secrets. Nobody is ever
// locked out for good: each failure beyond the free ones only doubles the wait,
// from a second up to MaxWait. At the defaults that leaves some hundred guesses
// a day for an account, however many computers they come from.
//
// A browser in which somebody signed in before has a count of its own for that
// account (device.go), so that others' failures do not keep the owner out.
// Across replicas that share a store, the count may be short by the tries that
// run at the very same moment.
type Lockout struct {
	// Off counts nothing, for where something in front of this server does.
	Off bool

	// Failures is after how many failures in a row an account must wait; and
	// after how many wrong secrets a client, at one network. Default: [DefaultLockoutFailures].
	Failures int

	// AddressFailures is after how many failures, for whichever accounts, an
	// IP address (IPv6: its /64) must wait. A right password does not reset
	// this count: who guesses may have an account. As many wrong secrets it
	// has for whichever clients, counted apart. Default:
	// [DefaultLockoutAddressFailures].
	AddressFailures int

	// MaxWait is how long the wait can get. Default: [DefaultLockoutMaxWait];
	// at most [MaxLockoutWait].
	MaxWait time.Duration
}

// Defaults and bounds of [Lockout].
const (
	DefaultLockoutFailures        = 10
	DefaultLockoutAddressFailures = 100
	DefaultLockoutMaxWait         = 15 * time.Minute
	MaxLockoutWait                = 24 * time.Hour

	// lockoutMemory is how long after its last wait a count is kept.
	lockoutMemory = 24 * time.Hour
)

// Check says why the bounds cannot be such, if they cannot.
func (l Lockout) Check() error { return l.setDefaults() }

// setDefaults fills in what may be left out.
func (l *Lockout) setDefaults() error {
	if l.Failures == 0 {
		l.Failures = DefaultLockoutFailures
	}
	if l.AddressFailures == 0 {
		l.AddressFailures = DefaultLockoutAddressFailures
	}
	if l.MaxWait == 0 {
		l.MaxWait = DefaultLockoutMaxWait
	}
	if l.Failures < 0 || l.AddressFailures < 0 {
		return errors.New("lockout: failures must be above 0")
	}
	return checkLifetime("lockout: max_wait", l.MaxWait, MaxLockoutWait)
}

// waitError refuses a try without a look at it.
type waitError struct{ wait time.Duration }

// Error implements error.
func (e *waitError) Error() string { return "wait " + inWords(e.wait) }

// turnstile counts failures in a [store.Store] and lets tries through by the counts.
type turnstile struct {
	Lockout
	store   store.Store
	keys    keyring.Sealing
	devices *devices
	trail   *recorder
	logger  *slog.Logger
	stripes [64]stripe

	// uncounted takes the failures that the store refuses, for everybody
	// together: with a store that is full or broken guessing gets slow, not free.
	mu        sync.Mutex
	uncounted tally
}

// stripe guards those counters whose tally is read and written in it.
type stripe struct {
	mu      sync.Mutex
	flights map[string]*flight
}

// flight is the tries of one counter that are under way.
type flight struct {
	tries   int
	waiting int           // at most, for one of them to be over
	landed  chan struct{} // closed when one of them is
}

// maxWaiting is how many tries wait for one counter, each with a look at the store
// whenever another try is over.
const maxWaiting = 100

// outcome is what a try came to.
type outcome int

const (
	undecided outcome = iota // it was not made, or failed by our fault
	succeeded
	failed
)

// try makes a try that counts against counters, unless one of them must wait:
// then the error is a [waitError], and check is not called. A try that comes to the
// error wrong failed by what was tried, and counts as a failure; any other error counts
// as nothing.
func (l *turnstile) try(ctx context.Context, counters []counter, wrong error, check func() error) (err error) {
	if l.Off {
		return check()
	}
	outcome := undecided
	for _, c := range counters {
		if err := l.begin(ctx, c); err != nil {
			return err
		}
		defer func() { l.end(ctx, c, outcome) }()
	}
	switch err = check(); {
	case err == nil:
		outcome = succeeded
	case errors.Is(err, wrong):
		outcome = failed
	}
	return err
}

// begin waits for a turn. As many tries go ahead at once as could all fail
// without a wait, and beyond that one: so tries at the same moment do not get
// past the limit, and right ones never count.
func (l *turnstile) begin(ctx context.Context, c counter) error {
	ctx, cancel := context.WithTimeout(ctx, hashTime)
	defer cancel()
	s := &l.stripes[c.stripe()]
	for {
		landed, err := l.board(ctx, s, c)
		if landed == nil || err != nil {
			return err
		}
		select {
		case <-landed:
		case <-ctx.Done():
			return unserved(ctx.Err())
		}
	}
}

// board adds a try to those under way, or returns what to wait for first.
func (l *turnstile) board(ctx context.Context, s *stripe, c counter) (landed <-chan struct{}, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := l.read(ctx, c)
	if err != nil {
		return nil, err
	}
	if wait := max(t.wait(), l.waitOfUncounted()); wait > 0 {
		return nil, &waitError{wait}
	}
	f := s.flights[c.key]
	switch {
	case f == nil:
		if s.flights == nil {
			s.flights = map[string]*flight{}
		}
		s.flights[c.key] = &flight{tries: 1, landed: make(chan struct{})}
	case t.Failures+f.tries < c.limit:
		f.tries++
	case f.waiting >= maxWaiting:
		return nil, busy(errors.New("too many tries for one account"))
	default:
		f.waiting++
		return f.landed, nil
	}
	return nil, nil
}

// end counts what a try came to. It does so also for a client that is gone
// already: going would be a way not to be counted.
func (l *turnstile) end(ctx context.Context, c counter, v outcome) {
	s := &l.stripes[c.stripe()]
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := l.count(context.WithoutCancel(ctx), c, v); err != nil {
		l.logger.ErrorContext(ctx, "a try to sign in was not counted", "error", err)
		if v == failed {
			l.failUncounted()
		}
	}
	f := s.flights[c.key]
	close(f.landed)
	f.landed, f.waiting = make(chan struct{}), 0
	if f.tries--; f.tries == 0 {
		delete(s.flights, c.key)
	}
}

func (l *turnstile) count(ctx context.Context, c counter, v outcome) error {
	if v == undecided || v == succeeded && c.owner == "" {
		return nil
	}
	t, err := l.read(ctx, c)
	switch {
	case err != nil:
		return err
	case v == failed:
		t.fail(c.owner, c.limit, l.MaxWait)
	case !t.forgive(c.owner):
		return nil
	}
	if t.Failures == 0 {
		return l.store.Delete(ctx, c.key)
	}
	return l.write(ctx, c, t)
}

func (l *turnstile) read(ctx context.Context, c counter) (t tally, err error) {
	value, err := l.store.Get(ctx, c.key)
	if errors.Is(err, store.ErrNotFound) {
		return t, nil
	}
	if err == nil {
		err = json.Unmarshal(value, &t)
	}
	if err != nil {
		return t, fmt.Errorf("reading a count of failures: %w", err)
	}
	return t, nil
}

func (l *turnstile) write(ctx context.Context, c counter, t tally) error {
	value, err := json.Marshal(t)
	if err != nil {
		return err
	}
	return l.store.Put(ctx, c.key, value, t.wait()+lockoutMemory)
}

func (l *turnstile) waitOfUncounted() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.uncounted.wait()
}

func (l *turnstile) failUncounted() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.uncounted.fail("", l.Failures, l.MaxWait)
}
