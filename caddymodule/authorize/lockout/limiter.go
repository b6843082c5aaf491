package lockout

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/browser"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// Limiter counts failures in a [store.Store] and lets tries through by the counts.
type Limiter struct {
	Policy
	Store   store.Store      // of the counts
	Keys    keyring.Sealing  // name the counts
	Devices *browser.Devices // are counted apart
	Trail   *audit.Recorder  // of who must wait
	Logger  *slog.Logger     // of what cannot be counted
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

// Try makes a try that counts against counters, unless one of them must wait:
// then the error is a [WaitError], and check is not called. A try that comes to the
// error wrong failed by what was tried, and counts as a failure; any other error counts
// as nothing.
func (l *Limiter) Try(ctx context.Context, counters []counter, wrong error, check func() error) (err error) {
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
func (l *Limiter) begin(ctx context.Context, c counter) error {
	ctx, cancel := context.WithTimeout(ctx, TurnTime)
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
			return Unserved(ctx.Err())
		}
	}
}

// board adds a try to those under way, or returns what to wait for first.
func (l *Limiter) board(ctx context.Context, s *stripe, c counter) (landed <-chan struct{}, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := l.read(ctx, c)
	if err != nil {
		return nil, err
	}
	if wait := max(t.wait(), l.waitOfUncounted()); wait > 0 {
		return nil, &WaitError{Wait: wait}
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
func (l *Limiter) end(ctx context.Context, c counter, v outcome) {
	s := &l.stripes[c.stripe()]
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := l.count(context.WithoutCancel(ctx), c, v); err != nil {
		l.Logger.ErrorContext(ctx, "a try to sign in was not counted", "error", err)
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

func (l *Limiter) count(ctx context.Context, c counter, v outcome) error {
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
		return l.Store.Delete(ctx, c.key)
	}
	return l.write(ctx, c, t)
}

func (l *Limiter) read(ctx context.Context, c counter) (t tally, err error) {
	value, err := l.Store.Get(ctx, c.key)
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

func (l *Limiter) write(ctx context.Context, c counter, t tally) error {
	value, err := json.Marshal(t)
	if err != nil {
		return err
	}
	return l.Store.Put(ctx, c.key, value, t.wait()+lockoutMemory)
}

func (l *Limiter) waitOfUncounted() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.uncounted.wait()
}

func (l *Limiter) failUncounted() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.uncounted.fail("", l.Failures, l.MaxWait)
}
