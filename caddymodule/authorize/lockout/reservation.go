package lockout

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fairqueue"
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
			t.Tries = append(t.Tries, try{id, until})
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
			err = l.Store.Do(ctx, calls...)
			for _, c := range calls {
				if err == nil {
					l.reservations.seen.Put(c.Key, c.Value, 0)
				}
			}
			if !store.Lost(err) {
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

// tally is how many attempts of a counter failed, and until when it must wait.
type tally struct {
	Failures int          `json:"failures"`
	Until    time.Time    `json:"until,omitzero"`
	Owners   []ownerTally `json:"owners,omitempty"` // the latest
	Tries    []try        `json:"tries,omitempty"`  // under way, if several gateways share the store
}

// try is an attempt that a gateway may be making.
type try struct {
	ID    string    `json:"id"`
	Until time.Time `json:"until"` // after which it tells nobody what came of it
}

// ownerTally is one owner's share of a tally.
type ownerTally struct {
	Owner    string `json:"owner"`
	Failures int    `json:"failures"`
}

// maxOwners bounds a tally in a flood of names. Failures of a dropped owner are never
// forgiven.
const maxOwners = 8

// counter is what failures are counted under.
type counter struct {
	key    string // in the store
	bucket uint16
	limit  int    // how many failures are free
	owner  string // whose success cancels their failures; "" for nobody's
}

// stripes is how many groups of counters there are, of each of which one changes at a time in this process.
const stripes = 64

// outcome is that of an attempt.
type outcome int

const (
	undecided outcome = iota // not made, or failed for another reason than a wrong secret
	succeeded
	failed
)

func (t *tally) wait(now time.Time) time.Duration { return max(0, t.Until.Sub(now)) }

// count counts an attempt of a counter.
func (t *tally) count(c counter, o outcome, most time.Duration, now time.Time) {
	switch o {
	case failed:
		t.fail(c.owner, c.limit, most, now)
	case succeeded:
		t.forgive(c.owner)
	}
}

// fail counts a failure; the first limit of them are free.
func (t *tally) fail(owner string, limit int, most time.Duration, now time.Time) {
	t.Failures++
	if over := t.Failures - limit; over >= 0 {
		t.Until = now.Add(min(most, time.Second<<min(over, 20)))
	}
	if owner == "" {
		return
	}
	if i := t.owner(owner); i >= 0 {
		t.Owners[i].Failures++
		return
	}
	t.Owners = append(t.Owners, ownerTally{owner, 1})
	t.Owners = t.Owners[max(0, len(t.Owners)-maxOwners):]
}

// forgive cancels an owner's failures, and reports whether there were any.
func (t *tally) forgive(owner string) bool {
	i := t.owner(owner)
	if i < 0 {
		return false
	}
	t.Failures -= t.Owners[i].Failures
	t.Owners = slices.Delete(t.Owners, i, i+1)
	return true
}

func (t *tally) owner(owner string) int {
	return slices.IndexFunc(t.Owners, func(o ownerTally) bool { return o.Owner == owner })
}

// end removes a try, and reports whether it was there.
func (t *tally) end(id string) bool {
	before := len(t.Tries)
	t.Tries = slices.DeleteFunc(t.Tries, func(u try) bool { return u.ID == id })
	return len(t.Tries) < before
}

// expire removes the tries of gateways that have gone.
func (t *tally) expire(now time.Time) {
	t.Tries = slices.DeleteFunc(t.Tries, func(u try) bool { return now.After(u.Until) })
}

func (c counter) stripe() int { return int(c.bucket) % stripes }

// counterBuckets is how many counters of a kind there are. Names and addresses share them by
// hash, whether or not the user exists: no flood of names takes more room, and counting does
// not tell which names exist. Those that share one may have to wait earlier. The hash is
// keyed, so that nobody can choose an address that shares a hospital's.
const counterBuckets = 1 << 14

func (l *Limiter) newCounter(ctx context.Context, kind, name, owner string, limit int) (counter, error) {
	sum, err := l.Keys.MAC(ctx, kind+"\x00"+name)
	if err != nil {
		return counter{}, err
	}
	bucket := binary.BigEndian.Uint16(sum) % counterBuckets
	c := counter{key: fmt.Sprintf("lockout:%s:%04x", kind, bucket), bucket: bucket, limit: limit}
	if owner != "" {
		sum, err = l.Keys.MAC(ctx, "owner\x00"+owner)
		c.owner = base64.RawURLEncoding.EncodeToString(sum[:min(len(sum), 9)])
	}
	return c, err
}

// The kinds of secret that can be guessed.
const (
	Password = "password"
	Code     = "code"
	secret   = "secret" // a client's, or the token of a registration
)

// devicesLimit is how many times the failures of one browser those of all may be in which the
// person signed in before: several cookies are worth little more than one.
const devicesLimit = 2

// Counters returns what an attempt counts under, and whether the browser is one in which the
// owner of the account signed in before: then it is the browser, and all such browsers
// together, or else the account and the address. A success cancels the failures of the account
// (if there is none, of the name) only, in this browser: other accounts under the same
// counter, or other spellings of the name, may be an attacker's own.
func (l *Limiter) Counters(r *http.Request, kind, name, account string) (counters []counter, known bool, err error) {
	ctx := r.Context()
	name = CanonicalName(name)
	owner := cmp.Or(account, name)
	device, err := l.Devices.Knowing(r, account)
	if err != nil {
		return nil, false, err
	}
	if device != "" {
		own, err1 := l.newCounter(ctx, kind+"-device", device+"\x00"+name, device+"\x00"+owner, l.Failures)
		all, err2 := l.newCounter(ctx, kind+"-devices", name, device+"\x00"+owner, devicesLimit*l.Failures)
		return []counter{own, all}, true, errors.Join(err1, err2)
	}
	counted, err1 := l.newCounter(ctx, kind, name, owner, l.Failures)
	address, err2 := l.newCounter(ctx, "address", fairqueue.Network(audit.ClientAddress(ctx)), "", l.AddressFailures)
	return []counter{counted, address}, false, errors.Join(err1, err2)
}

const maxName = 256 // bytes of a typed name that count

// CanonicalName is the same for all spellings that look like one name, so that another
// spelling gains no further attempts. Sign-in itself compares names exactly.
func CanonicalName(name string) string {
	name = name[:min(len(name), maxName)]
	return cases.Fold().String(strings.TrimSpace(norm.NFKC.String(name)))
}
