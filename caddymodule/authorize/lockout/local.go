package lockout

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// maxWaiting is how many attempts wait for one counter. Each reads the store whenever
// another ends.
const maxWaiting = 100

// begin waits until an attempt may run by all counters, which are this process's alone, and
// returns what ends it.
func (l *Limiter) begin(ctx context.Context, counters []counter) (func(outcome) error, error) {
	begun := 0
	end := func(o outcome) error {
		for _, c := range counters[:begun] {
			l.end(ctx, c, o)
		}
		return nil
	}
	for _, c := range counters {
		if err := l.queue(ctx, c); err != nil {
			_ = end(undecided) // never fails
			return nil, err
		}
		begun++
	}
	return end, nil
}

// queue waits until an attempt may run. As many run at once as can all fail without causing
// a wait, but at least one: so parallel attempts do not exceed the limit, and right ones
// never count against anybody.
func (l *Limiter) queue(ctx context.Context, c counter) error {
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
	if err == nil {
		err = l.wait(&t, time.Now())
	}
	if err != nil {
		return nil, err
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
		return nil, busy(errTooMany)
	default:
		p.waiting++
		return p.ended, nil
	}
	return nil, nil
}

var errTooMany = errors.New("too many tries for one account")

// end counts an attempt, even if the client has disconnected to escape that.
func (l *Limiter) end(ctx context.Context, c counter, o outcome) {
	s := &l.stripes[c.stripe()]
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := l.count(context.WithoutCancel(ctx), c, o); err != nil {
		l.notCounted(ctx, o, err)
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
	if err != nil || !t.count(c, o, l.MaxWait, time.Now()) {
		return err
	}
	if t.Failures == 0 {
		return l.Store.Delete(ctx, c.key)
	}
	value, err := json.Marshal(t)
	if err != nil {
		return err
	}
	return l.Store.Put(ctx, c.key, value, t.wait(time.Now())+countRetention)
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
