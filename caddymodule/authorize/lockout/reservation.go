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
	// tryLifetime is the lifetime of a reservation if its gateway crashes. An attempt that takes longer has no result.
	tryLifetime = 3 * QueueTimeout

	// clockDifference is the maximum difference between gateways' estimates of the store's time.
	clockDifference = 2 * time.Second

	// Polling intervals while waiting for other attempts.
	firstPause   = 50 * time.Millisecond
	longestPause = time.Second

	// maxRounds limits the repetitions of a change after concurrent changes by other gateways.
	maxRounds = 100

	maxSeen = 10_000 // number of cached counters

	// maxWaiting is the number of attempts waiting for one counter. Each polls the store.
	maxWaiting = 100
)

// errUnderWay means that running attempts use up all remaining attempts.
var errUnderWay = errors.New("concurrent attempts are still running")

// reserve waits until all counters permit an attempt, records it, and returns the function that ends
// it. As many attempts run concurrently as could all fail without causing a wait, but at least one.
// Therefore parallel attempts do not exceed the limit, and correct passwords never count as failures.
func (l *Limiter) reserve(ctx context.Context, counters []counter) (func(outcome) error, error) {
	waiting, cancel := context.WithTimeout(ctx, QueueTimeout)
	defer cancel()
	id := base64.RawURLEncoding.EncodeToString(oauth2.RandomBytes(9))
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		until := store.Now(l.Store).Add(tryLifetime)
		err := l.change(waiting, counters, func(c counter, t *tally) error {
			now := store.Now(l.Store)
			t.expire(now.Add(-clockDifference))
			t.end(id) // reserved before in a step that was not atomic
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

// pause waits before the next poll of a counter.
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

// settleTry counts a reserved attempt, even if the client disconnected to avoid that. If it took too long,
// other attempts may have replaced it: then it is not counted, and its error must replace the result.
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
		case isLate(): // and not yet counted in a step that was not atomic
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
	errLate    = errors.New("the attempt timed out")
	errTooMany = errors.New("too many concurrent attempts for one account")
)

// change alters the tallies of counters in one step. Errors of alter are final only for stored
// tallies, which take another round trip than cached tallies of a shared store.
func (l *Limiter) change(ctx context.Context, counters []counter, alter func(counter, *tally) error) error {
	l.reservations.once.Do(l.reservations.start)
	done, err := l.reservations.lockCounters(ctx, counters)
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
			if !store.IsConflict(err) {
				return err
			}
		}
		if held, err = l.read(ctx, counters); err != nil {
			return err
		}
		isRead = true
	}
	return busy(errors.New("too many conflicting changes by other gateways"))
}

// changeLocal is like change, but for a store of this process: attempts are in memory, and only changed
// tallies are written. It requires the turns of the counters. Attempts end even if writing fails.
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
			if err = l.Store.Do(ctx, calls...); store.IsConflict(err) {
				continue // another server of this process changed the counter during a reload
			}
		}
		for i, c := range counters {
			l.reservations.setTries(c, tries[i])
		}
		return err
	}
	return busy(errors.New("too many conflicting changes by another server of this process"))
}

// setTries replaces the attempts of a counter in memory. It requires the turn of the counter.
func (s *reservations) setTries(c counter, tries []try) {
	if of := s.tries[c.stripe()]; len(tries) > 0 {
		of[c.key] = tries
	} else {
		delete(of, c.key)
	}
}

// forget removes an attempt from memory after its counters could not be read.
func (l *Limiter) forget(ctx context.Context, counters []counter, id string) {
	done, err := l.reservations.lockCounters(ctx, counters)
	if err != nil {
		return // expires after tryLifetime
	}
	defer done()
	for _, c := range counters {
		tries := slices.Clone(l.reservations.tries[c.stripe()][c.key])
		l.reservations.setTries(c, slices.DeleteFunc(tries, func(t try) bool { return t.ID == id }))
	}
}

// changes returns the calls that replace the stored tallies with the altered ones.
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

// orNone returns a stored tally, or an empty one for nil.
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

// tally contains the failed attempts of a counter and the end of its wait.
type tally struct {
	Failures int          `json:"failures"`
	Until    time.Time    `json:"until,omitzero"`
	Owners   []ownerTally `json:"owners,omitempty"` // latest owners
	Tries    []try        `json:"tries,omitempty"`  // running attempts, if several gateways share the store
}

// try is a running attempt of a gateway.
type try struct {
	ID    string    `json:"id"`
	Until time.Time `json:"until"` // time after which its result is discarded
}

// ownerTally is one owner's share of a tally.
type ownerTally struct {
	Owner    string `json:"owner"`
	Failures int    `json:"failures"`
}

// maxOwners limits a tally during floods of names. Failures of a dropped owner are never reset.
const maxOwners = 8

// counter is a counter of failures.
type counter struct {
	key    string // store key
	bucket uint16
	limit  int    // number of free failures
	owner  string // owner with failures that a success resets; "" if none
}

// stripes is the number of groups of counters. Within a group, this process makes one change at a time.
const stripes = 64

// outcome is the outcome of an attempt.
type outcome int

const (
	undecided outcome = iota // not made, or failed for a reason other than a wrong secret
	succeeded
	failed
)

func (t *tally) wait(now time.Time) time.Duration { return max(0, t.Until.Sub(now)) }

// count counts the outcome of an attempt.
func (t *tally) count(c counter, o outcome, most time.Duration, now time.Time) {
	switch o {
	case failed:
		t.fail(c.owner, c.limit, most, now)
	case succeeded:
		t.forgive(c.owner)
	}
}

// fail counts a failure; the first limit failures are free.
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

// forgive resets an owner's failures and reports whether there were any.
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

// end removes an attempt and reports whether it was present.
func (t *tally) end(id string) bool {
	before := len(t.Tries)
	t.Tries = slices.DeleteFunc(t.Tries, func(u try) bool { return u.ID == id })
	return len(t.Tries) < before
}

// expire removes the attempts of crashed gateways.
func (t *tally) expire(now time.Time) {
	t.Tries = slices.DeleteFunc(t.Tries, func(u try) bool { return now.After(u.Until) })
}

func (c counter) stripe() int { return int(c.bucket) % stripes }

// counterBuckets is the number of counters per kind. Names and addresses share counters by hash,
// whether or not the user exists: floods of names use no more space, and counting does not reveal
// which names exist. Sharing a counter may cause an earlier wait. The hash is keyed, so that
// attackers cannot choose an address that shares a hospital's counter.
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

// Kinds of secrets that can be guessed.
const (
	Password = "password"
	Code     = "code"
	secret   = "secret" // a client secret or registration token
)

// devicesLimit is the factor between the failures of one known browser and of all known browsers of
// an account, so that several cookies are worth little more than one.
const devicesLimit = 2

// Counters returns the counters of an attempt, and whether the browser is known for the account. For a
// known browser these are its own and the counter of all known browsers, otherwise the account's and
// the address's. A success resets only the failures of the account (if none, of the name) in this
// browser, because other accounts or spellings with the same counter may be the attacker's own.
func (l *Limiter) Counters(r *http.Request, kind, name, account string) (counters []counter, known bool, err error) {
	ctx := r.Context()
	name = CanonicalName(name)
	owner := cmp.Or(account, name)
	device, err := l.Devices.TrustedBrowserID(r, account)
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

const maxName = 256 // significant bytes of a typed name

// CanonicalName returns the same text for all similar-looking spellings of a name, so that
// spellings gain no further attempts. Sign-in itself compares names exactly.
func CanonicalName(name string) string {
	name = name[:min(len(name), maxName)]
	return cases.Fold().String(strings.TrimSpace(norm.NFKC.String(name)))
}
