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
	// attemptLifetime is the lifetime of a reservation if its gateway crashes. Results of longer attempts are discarded.
	attemptLifetime = 3 * QueueTimeout

	// maxClockSkew is the maximum difference between the gateways' estimates of the store's time.
	maxClockSkew = 2 * time.Second

	// Bounds of the polling interval while waiting for other attempts.
	minPollInterval = 50 * time.Millisecond
	maxPollInterval = time.Second

	// maxRetries is how often a change is retried after conflicting changes by other gateways.
	maxRetries = 100

	maxCachedTallies = 10_000 // maximum number of cached counters

	// maxWaiters is the maximum number of attempts that wait for counters of one stripe. Each of them polls the store.
	maxWaiters = 100
)

// errAttemptsRunning means that the limit would be exceeded if all running attempts failed.
var errAttemptsRunning = errors.New("too many sign-in attempts in progress")

// reserve waits until all counters permit an attempt, and records it. The returned function counts the outcome. The number of
// concurrent attempts per counter never exceeds the number of failures that it still permits, except that one attempt is always
// possible. Therefore, concurrent attempts cannot exceed the limit, and correct passwords are never counted as failures.
func (l *Limiter) reserve(ctx context.Context, counters []counter) (func(outcome) error, error) {
	waitCtx, cancel := context.WithTimeout(ctx, QueueTimeout)
	defer cancel()
	id := base64.RawURLEncoding.EncodeToString(oauth2.RandomBytes(9))
	for interval := minPollInterval; ; interval = min(2*interval, maxPollInterval) {
		until := store.Now(l.Store).Add(attemptLifetime)
		err := l.updateTallies(waitCtx, counters, func(c counter, t *tally) error {
			now := store.Now(l.Store)
			t.removeExpired(now.Add(-maxClockSkew))
			t.removeAttempt(id) // reserved by an earlier iteration, if its step was not atomic
			if err := l.checkWait(t, now); err != nil {
				return err
			}
			if len(t.Attempts) > 0 && t.Failures+len(t.Attempts) >= c.limit {
				return errAttemptsRunning
			}
			t.Attempts = append(t.Attempts, attempt{id, until})
			return nil
		})
		if errors.Is(err, errAttemptsRunning) {
			err = l.waitForPoll(waitCtx, counters[0], interval)
		} else if err == nil {
			return func(o outcome) error { return l.countReserved(ctx, counters, attempt{id, until}, o) }, nil
		}
		if err != nil {
			return nil, ConvertQueueError(err)
		}
	}
}

// waitForPoll waits for a random time around interval before the next poll of a counter.
func (l *Limiter) waitForPoll(ctx context.Context, c counter, interval time.Duration) error {
	waiters := &l.reservations.waiters[c.stripe()]
	defer waiters.Add(-1)
	if waiters.Add(1) > maxWaiters {
		return newBusyError(errTooManyAttempts)
	}
	select {
	case <-time.After(interval/2 + rand.N(interval)):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// countReserved counts a reserved attempt, even if the client has disconnected to prevent this. If the attempt took too long,
// others may have replaced it. In that case, it is not counted, and its result must be replaced by the returned error.
func (l *Limiter) countReserved(ctx context.Context, counters []counter, u attempt, o outcome) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), QueueTimeout)
	defer cancel()
	isExpired := func() bool { return store.Now(l.Store).After(u.ExpiresAt) }
	expired := isExpired()
	if expired {
		return newBusyError(errAttemptExpired)
	}
	err := l.updateTallies(ctx, counters, func(c counter, t *tally) error {
		switch {
		case t.removeAttempt(u.ID):
			t.countOutcome(c, o, l.MaxWait, store.Now(l.Store))
		case isExpired(): // unless already counted by an earlier try, if its step was not atomic
			expired = true
		}
		return nil
	})
	if err != nil {
		l.recordUncounted(ctx, o, err)
		if !store.IsShared(l.Store) {
			l.discardAttempt(ctx, counters, u.ID)
		}
	}
	if expired {
		return newBusyError(errAttemptExpired)
	}
	return nil
}

var (
	errAttemptExpired  = errors.New("sign-in attempt timed out")
	errTooManyAttempts = errors.New("too many concurrent sign-in attempts for one account")
)

// updateTallies applies update to the tallies of counters in one store step. With a shared store, it first uses cached tallies.
// If update returns an error for these, it reloads the tallies and calls update again.
func (l *Limiter) updateTallies(ctx context.Context, counters []counter, update func(counter, *tally) error) error {
	l.reservations.initOnce.Do(l.reservations.init)
	done, err := l.reservations.lockStripes(ctx, counters)
	if err != nil {
		return err
	}
	defer done()
	if !store.IsShared(l.Store) {
		return l.updateLocalTallies(ctx, counters, update)
	}
	stored := l.reservations.cachedValues(counters)
	isReloaded := false
	for range maxRetries {
		calls, err := l.replaceCalls(counters, stored, update)
		switch {
		case !isReloaded && (err != nil || len(calls) < len(counters)):
		case err != nil || len(calls) == 0:
			return err
		default:
			err = l.Store.Do(ctx, calls...)
			for _, c := range calls {
				if err == nil {
					l.reservations.cachedTallies.Put(c.Key, c.Value, 0)
				}
			}
			if !store.IsConflict(err) {
				return err
			}
		}
		if stored, err = l.loadTallies(ctx, counters); err != nil {
			return err
		}
		isReloaded = true
	}
	return newBusyError(errors.New("lockout counters: too many conflicting updates by other gateways"))
}

// updateLocalTallies is like updateTallies, but for a store of this process: attempts are kept in memory, and only changed
// tallies are written. The caller must hold the stripe locks of the counters. Attempts are updated even if writing fails.
func (l *Limiter) updateLocalTallies(ctx context.Context, counters []counter, update func(counter, *tally) error) error {
	for range maxRetries {
		stored, err := l.loadTallies(ctx, counters)
		if err != nil {
			return err
		}
		attempts := make([][]attempt, len(counters))
		calls, err := l.replaceCalls(counters, stored, func(c counter, t *tally) error {
			i := slices.Index(counters, c)
			t.Attempts = slices.Clone(l.reservations.attempts[c.stripe()][c.key])
			err := update(c, t)
			attempts[i], t.Attempts = t.Attempts, nil
			return err
		})
		if err != nil {
			return err
		}
		if len(calls) > 0 {
			if err = l.Store.Do(ctx, calls...); store.IsConflict(err) {
				continue // another server in this process changed the counter, e.g. during a reload
			}
		}
		for i, c := range counters {
			l.reservations.setAttempts(c, attempts[i])
		}
		return err
	}
	return newBusyError(errors.New("lockout counters: too many conflicting updates in this process"))
}

// setAttempts replaces the attempts of a counter in memory. The caller must hold the stripe lock of the counter.
func (s *reservations) setAttempts(c counter, attempts []attempt) {
	if of := s.attempts[c.stripe()]; len(attempts) > 0 {
		of[c.key] = attempts
	} else {
		delete(of, c.key)
	}
}

// discardAttempt removes an attempt from memory after its outcome could not be counted.
func (l *Limiter) discardAttempt(ctx context.Context, counters []counter, id string) {
	done, err := l.reservations.lockStripes(ctx, counters)
	if err != nil {
		return // the attempt expires after attemptLifetime
	}
	defer done()
	for _, c := range counters {
		attempts := slices.Clone(l.reservations.attempts[c.stripe()][c.key])
		l.reservations.setAttempts(c, slices.DeleteFunc(attempts, func(t attempt) bool { return t.ID == id }))
	}
}

// replaceCalls returns the store calls that replace the stored tallies with the results of update, if they differ.
func (l *Limiter) replaceCalls(counters []counter, stored [][]byte, update func(counter, *tally) error) ([]*store.Call, error) {
	var calls []*store.Call
	for i, c := range counters {
		var t tally
		if err := json.Unmarshal(tallyOrEmpty(stored[i]), &t); err != nil {
			return nil, fmt.Errorf("reading lockout counters: %w", err)
		}
		if err := update(c, &t); err != nil {
			return nil, err
		}
		value, err := json.Marshal(t)
		if err != nil {
			return nil, err
		}
		if !bytes.Equal(tallyOrEmpty(stored[i]), value) {
			calls = append(calls, store.ReplaceCall(c.key, stored[i], value, t.remainingWait(store.Now(l.Store))+counterRetention))
		}
	}
	return calls, nil
}

// tallyOrEmpty returns a stored tally, or an empty one if stored is nil.
func tallyOrEmpty(stored []byte) []byte {
	if stored == nil {
		return []byte(`{"failures":0}`)
	}
	return stored
}

func (l *Limiter) loadTallies(ctx context.Context, counters []counter) ([][]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var keys []string
	for _, c := range counters {
		keys = append(keys, c.key)
	}
	stored, err := store.ReadValues(ctx, l.Store, keys...)
	if err != nil {
		return nil, fmt.Errorf("reading lockout counters: %w", err)
	}
	for i, c := range counters {
		l.reservations.cachedTallies.Put(c.key, stored[i], 0)
	}
	return stored, nil
}

func (s *reservations) init() {
	for i := range s.stripeLocks {
		s.stripeLocks[i], s.attempts[i] = semaphore.NewWeighted(1), map[string][]attempt{}
	}
	s.cachedTallies.MaxEntries = maxCachedTallies
}

// tally is the state of a counter: its failed attempts and the end of its wait.
type tally struct {
	Failures  int          `json:"failures"`
	WaitUntil time.Time    `json:"until,omitzero"`
	Owners    []ownerTally `json:"owners,omitempty"` // owners with the latest failures
	Attempts  []attempt    `json:"tries,omitempty"`  // running attempts; used only if several gateways share the store
}

// attempt is a running attempt.
type attempt struct {
	ID        string    `json:"id"`
	ExpiresAt time.Time `json:"until"` // time after which the result is discarded
}

// ownerTally contains one owner's failures in a tally.
type ownerTally struct {
	Owner    string `json:"owner"`
	Failures int    `json:"failures"`
}

// maxOwners limits the size of a tally if an attacker tries many names. Failures of a removed owner are never reset.
const maxOwners = 8

// counter identifies a counter of failures.
type counter struct {
	key    string // store key
	bucket uint16
	limit  int    // number of failures without a wait
	owner  string // owner of the failures that a success resets; "" if there is none
}

// stripeCount is the number of groups of counters. Within a group, a process makes one change at a time.
const stripeCount = 64

// outcome is the outcome of an attempt.
type outcome int

const (
	outcomeUndecided outcome = iota // the secret was not checked, or the attempt failed for another reason
	outcomeSucceeded
	outcomeFailed
)

func (t *tally) remainingWait(now time.Time) time.Duration { return max(0, t.WaitUntil.Sub(now)) }

// countOutcome updates the tally after an attempt.
func (t *tally) countOutcome(c counter, o outcome, maxWait time.Duration, now time.Time) {
	switch o {
	case outcomeFailed:
		t.countFailure(c.owner, c.limit, maxWait, now)
	case outcomeSucceeded:
		t.resetFailures(c.owner)
	}
}

// countFailure counts a failure. From the failure number limit on, it sets a wait.
func (t *tally) countFailure(owner string, limit int, maxWait time.Duration, now time.Time) {
	t.Failures++
	if excess := t.Failures - limit; excess >= 0 {
		t.WaitUntil = now.Add(min(maxWait, time.Second<<min(excess, 20)))
	}
	if owner == "" {
		return
	}
	if i := t.ownerIndex(owner); i >= 0 {
		t.Owners[i].Failures++
		return
	}
	t.Owners = append(t.Owners, ownerTally{owner, 1})
	t.Owners = t.Owners[max(0, len(t.Owners)-maxOwners):]
}

// resetFailures removes an owner's failures and reports whether there were any.
func (t *tally) resetFailures(owner string) bool {
	i := t.ownerIndex(owner)
	if i < 0 {
		return false
	}
	t.Failures -= t.Owners[i].Failures
	t.Owners = slices.Delete(t.Owners, i, i+1)
	return true
}

func (t *tally) ownerIndex(owner string) int {
	return slices.IndexFunc(t.Owners, func(o ownerTally) bool { return o.Owner == owner })
}

// removeAttempt removes the attempt with an id and reports whether it was present.
func (t *tally) removeAttempt(id string) bool {
	before := len(t.Attempts)
	t.Attempts = slices.DeleteFunc(t.Attempts, func(u attempt) bool { return u.ID == id })
	return len(t.Attempts) < before
}

// removeExpired removes expired attempts. Their gateways have crashed.
func (t *tally) removeExpired(now time.Time) {
	t.Attempts = slices.DeleteFunc(t.Attempts, func(u attempt) bool { return now.After(u.ExpiresAt) })
}

func (c counter) stripe() int { return int(c.bucket) % stripeCount }

// countersPerKind is the number of counters per kind. Names and addresses are mapped to counters by hash, whether or not the
// user exists. Therefore, trying many names uses no additional space, and counting does not reveal which names exist. Names
// that share a counter may have to wait earlier. The hash is keyed, so that attackers cannot choose an address that shares a
// counter with a hospital.
const countersPerKind = 1 << 14

func (l *Limiter) newCounter(ctx context.Context, kind, name, owner string, limit int) (counter, error) {
	sum, err := l.Keys.MAC(ctx, kind+"\x00"+name)
	if err != nil {
		return counter{}, err
	}
	bucket := binary.BigEndian.Uint16(sum) % countersPerKind
	c := counter{key: fmt.Sprintf("lockout:%s:%04x", kind, bucket), bucket: bucket, limit: limit}
	if owner != "" {
		sum, err = l.Keys.MAC(ctx, "owner\x00"+owner)
		c.owner = base64.RawURLEncoding.EncodeToString(sum[:min(len(sum), 9)])
	}
	return c, err
}

// Kinds of secrets with counted attempts.
const (
	KindPassword = "password"
	KindCode     = "code"
	kindSecret   = "secret" // client secret or registration token
)

// deviceLimitFactor is the ratio of the failure limit for all known browsers of an account to the limit for one of them.
// Stealing several cookies is therefore worth little more than stealing one.
const deviceLimitFactor = 2

// Counters returns the counters of an attempt, and whether the browser is known for the account. A known browser has its own
// counter and shares one with all other known browsers. Other browsers share the counters of the account and of the address. A
// success resets only the failures of the account (of the name, if it has no account) in this browser, because an attacker may
// own other accounts, or spellings, with the same counter.
func (l *Limiter) Counters(r *http.Request, kind, name, account string) (counters []counter, isKnownDevice bool, err error) {
	ctx := r.Context()
	name = CanonicalName(name)
	owner := cmp.Or(account, name)
	device, err := l.Devices.TrustedBrowserID(r, account)
	if err != nil {
		return nil, false, err
	}
	if device != "" {
		own, err1 := l.newCounter(ctx, kind+"-device", device+"\x00"+name, device+"\x00"+owner, l.Failures)
		all, err2 := l.newCounter(ctx, kind+"-devices", name, device+"\x00"+owner, deviceLimitFactor*l.Failures)
		return []counter{own, all}, true, errors.Join(err1, err2)
	}
	counted, err1 := l.newCounter(ctx, kind, name, owner, l.Failures)
	address, err2 := l.newCounter(ctx, "address", fairqueue.Network(audit.ClientAddress(ctx)), "", l.AddressFailures)
	return []counter{counted, address}, false, errors.Join(err1, err2)
}

const maxNameBytes = 256 // maximum number of bytes of a typed name that are used

// CanonicalName returns the same text for all spellings of a name that look similar, so that other spellings do not permit
// additional attempts. Sign-in itself compares names exactly.
func CanonicalName(name string) string {
	name = name[:min(len(name), maxNameBytes)]
	return cases.Fold().String(strings.TrimSpace(norm.NFKC.String(name)))
}
