package lockout

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

const (
	// tryLifetime is how long a try stays reserved if its gateway dies. One that takes longer
	// ends without a result.
	tryLifetime = 3 * QueueTimeout

	// clockDifference is how far apart gateways may take the time of the store to be.
	clockDifference = 2 * time.Second

	// Those who wait for other tries look again after a pause, which grows.
	firstPause   = 50 * time.Millisecond
	longestPause = time.Second

	// maxRounds bounds how often a change starts again because another gateway was quicker.
	maxRounds = 100

	maxSeen = 10_000 // counters

	// maxWaiting is how many attempts wait for one counter. Each reads the store again and again.
	maxWaiting = 100
)

// errUnderWay says that all tries that are left are being made.
var errUnderWay = errors.New("other tries have not ended")

// reserve waits until an attempt may run by all counters, notes it, and returns what ends it.
// As many run at once as can all fail without causing a wait, but at least one: so parallel
// attempts do not exceed the limit, and correct passwords are never counted as failures.
func (l *Limiter) reserve(ctx context.Context, counters []counter) (func(outcome) error, error) {
	waiting, cancel := context.WithTimeout(ctx, QueueTimeout)
	defer cancel()
	id := base64.RawURLEncoding.EncodeToString(oauth2.RandomBytes(9))
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		until := store.Now(l.Store).Add(tryLifetime)
		err := l.change(waiting, counters, func(c counter, t *tally) error {
			now := store.Now(l.Store)
			t.expire(now.Add(-clockDifference))
			t.end(id) // begun before, in a step that was not atomic
			if err := l.wait(t, now); err != nil {
				return err
			}
			if len(t.Tries) > 0 && t.Failures+len(t.Tries) >= c.limit {
				return errUnderWay
			}
			t.begin(id, until)
			return nil
		})
		if errors.Is(err, errUnderWay) {
			err = l.pause(waiting, counters[0], pause)
		} else if err == nil {
			return func(o outcome) error { return l.settleTry(ctx, counters, try{id, until}, o) }, nil
		}
		if err != nil {
			return nil, QueueError(err)
		}
	}
}

// pause waits before another look at a counter.
func (l *Limiter) pause(ctx context.Context, c counter, pause time.Duration) error {
	waiting := &l.reservations.waiting[c.stripe()]
	defer waiting.Add(-1)
	if waiting.Add(1) > maxWaiting {
		return busy(errTooMany)
	}
	select {
	case <-time.After(pause/2 + rand.N(pause)):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// settleTry counts a try that was reserved, even if the client has disconnected to escape
// that. If it took too long, others may have been let in in its place: then nothing counts,
// and its error must replace the result.
func (l *Limiter) settleTry(ctx context.Context, counters []counter, u try, o outcome) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), QueueTimeout)
	defer cancel()
	isLate := func() bool { return store.Now(l.Store).After(u.Until) }
	late := isLate()
	if late {
		return busy(errLate)
	}
	err := l.change(ctx, counters, func(c counter, t *tally) error {
		switch {
		case t.end(u.ID):
			t.count(c, o, l.MaxWait, store.Now(l.Store))
		case isLate(): // and not counted before, in a step that was not atomic
			late = true
		}
		return nil
	})
	if err != nil {
		l.notCounted(ctx, o, err)
		if !store.IsShared(l.Store) {
			l.forget(ctx, counters, u.ID)
		}
	}
	if late {
		return busy(errLate)
	}
	return nil
}

var (
	errLate    = errors.New("the try took too long")
	errTooMany = errors.New("too many tries for one account")
)

// change alters the tallies of counters in one step. An error of alter is returned if it was
// given what is stored, which takes another round trip than what was seen lately in a shared store.
func (l *Limiter) change(ctx context.Context, counters []counter, alter func(counter, *tally) error) error {
	l.reservations.once.Do(l.reservations.start)
	done, err := l.reservations.turn(ctx, counters)
	if err != nil {
		return err
	}
	defer done()
	if !store.IsShared(l.Store) {
		return l.changeLocal(ctx, counters, alter)
	}
	held := l.reservations.lastSeen(counters)
	isRead := false
	for range maxRounds {
		calls, err := l.changes(counters, held, alter)
		switch {
		case !isRead && (err != nil || len(calls) < len(counters)):
		case err != nil || len(calls) == 0:
			return err
		default:
			if err = l.Store.Do(ctx, calls...); !store.Lost(err) {
				l.saw(calls, err)
				return err
			}
		}
		if held, err = l.read(ctx, counters); err != nil {
			return err
		}
		isRead = true
	}
	return busy(errors.New("other gateways were quicker each time"))
}

// changeLocal is change for the store of this process: tries are in memory, and what is stored is written only if it
// changes. It requires the turns of the counters. Tries end even if it cannot be written.
func (l *Limiter) changeLocal(ctx context.Context, counters []counter, alter func(counter, *tally) error) error {
	for range maxRounds {
		held, err := l.read(ctx, counters)
		if err != nil {
			return err
		}
		tries := make([][]try, len(counters))
		calls, err := l.changes(counters, held, func(c counter, t *tally) error {
			i := slices.Index(counters, c)
			t.Tries = slices.Clone(l.reservations.tries[c.stripe()][c.key])
			err := alter(c, t)
			tries[i], t.Tries = t.Tries, nil
			return err
		})
		if err != nil {
			return err
		}
		if len(calls) > 0 {
			if err = l.Store.Do(ctx, calls...); store.Lost(err) {
				continue // another server of this process changed the counter during a reload
			}
		}
		for i, c := range counters {
			l.reservations.setTries(c, tries[i])
		}
		return err
	}
	return busy(errors.New("another server of this process was quicker each time"))
}

// setTries replaces the tries of a counter in memory. The caller holds the turn of the counter.
func (s *reservations) setTries(c counter, tries []try) {
	if of := s.tries[c.stripe()]; len(tries) > 0 {
		of[c.key] = tries
	} else {
		delete(of, c.key)
	}
}

// forget removes a try from memory after its counters could not be read.
func (l *Limiter) forget(ctx context.Context, counters []counter, id string) {
	done, err := l.reservations.turn(ctx, counters)
	if err != nil {
		return // it ends by itself after tryLifetime
	}
	defer done()
	for _, c := range counters {
		tries := slices.Clone(l.reservations.tries[c.stripe()][c.key])
		l.reservations.setTries(c, slices.DeleteFunc(tries, func(t try) bool { return t.ID == id }))
	}
}

// changes returns the calls that store the altered tallies in place of those held.
func (l *Limiter) changes(counters []counter, held [][]byte, alter func(counter, *tally) error) ([]*store.Call, error) {
	var calls []*store.Call
	for i, c := range counters {
		var t tally
		if err := json.Unmarshal(orNone(held[i]), &t); err != nil {
			return nil, fmt.Errorf("reading a count of failures: %w", err)
		}
		if err := alter(c, &t); err != nil {
			return nil, err
		}
		value, err := json.Marshal(t)
		if err != nil {
			return nil, err
		}
		if !bytes.Equal(orNone(held[i]), value) {
			calls = append(calls, store.Replacing(c.key, held[i], value, t.wait(store.Now(l.Store))+countRetention))
		}
	}
	return calls, nil
}

// orNone returns a stored tally, or one without failures if there is none.
func orNone(held []byte) []byte {
	if held == nil {
		return []byte(`{"failures":0}`)
	}
	return held
}

// saw remembers what a step has stored.
func (l *Limiter) saw(calls []*store.Call, err error) {
	for _, c := range calls {
		if err == nil {
			l.reservations.seen.Put(c.Key, c.Value, 0)
		}
	}
}

func (l *Limiter) read(ctx context.Context, counters []counter) ([][]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var keys []string
	for _, c := range counters {
		keys = append(keys, c.key)
	}
	held, err := store.Values(ctx, l.Store, keys...)
	if err != nil {
		return nil, fmt.Errorf("reading a count of failures: %w", err)
	}
	for i, c := range counters {
		l.reservations.seen.Put(c.key, held[i], 0)
	}
	return held, nil
}

func (s *reservations) start() {
	for i := range s.turns {
		s.turns[i], s.tries[i] = semaphore.NewWeighted(1), map[string][]try{}
	}
	s.seen.MaxEntries = maxSeen
}
