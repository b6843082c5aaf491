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

// Limiter counts failed attempts in a [store.Store] and delays further ones.
type Limiter struct {
	Policy
	Store   store.Store      // holds the counts
	Keys    keyring.Sealing  // name the counts
	Devices *browser.Devices // are counted apart
	Trail   *audit.Recorder  // records who must wait
	Logger  *slog.Logger     // gets what could not be counted
	stripes [64]stripe

	// uncounted counts failures that could not be stored, for everybody together: a full
	// or broken store makes guessing slow, not free.
	mu        sync.Mutex
	uncounted tally
}

// stripe guards some of the counters while a tally is read and written.
type stripe struct {
	mu      sync.Mutex
	pending map[string]*pendingAttempts // by the counter's key
}

// pendingAttempts are the attempts of one counter that have begun and not ended.
type pendingAttempts struct {
	running int
	waiting int           // for one of those running to end
	ended   chan struct{} // closed when one does
}

// maxWaiting is how many attempts wait for one counter. Each reads the store whenever
// another ends.
const maxWaiting = 100

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

// begin waits until an attempt may run. As many run at once as can all fail without causing
// a wait, but at least one: so parallel attempts do not exceed the limit, and right ones
// never count against anybody.
func (l *Limiter) begin(ctx context.Context, c counter) error {
	ctx, cancel := context.WithTimeout(ctx, QueueTimeout)
	defer cancel()
	for {
		ended, err := l.admit(ctx, c)
		if ended == nil || err != nil {
			return err
		}
		select {
		case <-ended:
		case <-ctx.Done():
			return QueueError(ctx.Err())
		}
	}
}

// admit lets an attempt run, or returns what to wait for first.
func (l *Limiter) admit(ctx context.Context, c counter) (ended <-chan struct{}, err error) {
	s := &l.stripes[c.stripe()]
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := l.read(ctx, c)
	if err != nil {
		return nil, err
	}
	if wait := max(t.wait(), l.uncountedWait()); wait > 0 {
		return nil, &WaitError{Wait: wait}
	}
	p := s.pending[c.key]
	switch {
	case p == nil:
		if s.pending == nil {
			s.pending = map[string]*pendingAttempts{}
		}
		s.pending[c.key] = &pendingAttempts{running: 1, ended: make(chan struct{})}
	case t.Failures+p.running < c.limit:
		p.running++
	case p.waiting >= maxWaiting:
		return nil, busy(errors.New("too many tries for one account"))
	default:
		p.waiting++
		return p.ended, nil
	}
	return nil, nil
}

// end counts an attempt, even if the client has disconnected to escape that.
func (l *Limiter) end(ctx context.Context, c counter, o outcome) {
	s := &l.stripes[c.stripe()]
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := l.count(context.WithoutCancel(ctx), c, o); err != nil {
		l.Logger.ErrorContext(ctx, "a try to sign in was not counted", "error", err)
		if o == failed {
			l.failUncounted()
		}
	}
	p := s.pending[c.key]
	close(p.ended)
	p.ended, p.waiting = make(chan struct{}), 0
	if p.running--; p.running == 0 {
		delete(s.pending, c.key)
	}
}

func (l *Limiter) count(ctx context.Context, c counter, o outcome) error {
	if o == undecided || o == succeeded && c.owner == "" {
		return nil
	}
	t, err := l.read(ctx, c)
	switch {
	case err != nil:
		return err
	case o == failed:
		t.fail(c.owner, c.limit, l.MaxWait)
	case !t.forgive(c.owner):
		return nil
	}
	if t.Failures == 0 {
		return l.Store.Delete(ctx, c.key)
	}
	value, err := json.Marshal(t)
	if err != nil {
		return err
	}
	return l.Store.Put(ctx, c.key, value, t.wait()+countRetention)
}

func (l *Limiter) read(ctx context.Context, c counter) (tally, error) {
	t, err := store.GetJSON[tally](ctx, l.Store, c.key)
	if err != nil {
		return tally{}, fmt.Errorf("reading a count of failures: %w", err)
	}
	if t == nil {
		return tally{}, nil
	}
	return *t, nil
}

func (l *Limiter) uncountedWait() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.uncounted.wait()
}

func (l *Limiter) failUncounted() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.uncounted.fail("", l.Failures, l.MaxWait)
}
