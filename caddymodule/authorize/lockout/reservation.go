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
	// attemptLifetime is the lifetime of a reservation if its gateway crashes. An attempt that takes longer has no result.
	attemptLifetime = 3 * QueueTimeout

	// maxClockSkew is the maximum difference between gateways' estimates of the store's time.
	maxClockSkew = 2 * time.Second

	// Polling intervals while waiting for other attempts.
	minPollInterval = 50 * time.Millisecond
	maxPollInterval = time.Second

	// maxRetries limits the repetitions of a change after concurrent changes by other gateways.
	maxRetries = 100

	maxCachedTallies = 10_000 // number of cached counters

	// maxWaiters is the number of attempts waiting for one counter. Each polls the store.
	maxWaiters = 100
)

// errAttemptsRunning means that running attempts use up all remaining attempts.
var errAttemptsRunning = errors.New("too many sign-in attempts in progress")

// reserve waits until all counters permit an attempt, records it, and returns the function that ends
// it. As many attempts run concurrently as could all fail without causing a wait, but at least one.
// Therefore parallel attempts do not exceed the limit, and correct passwords never count as failures.
func (l *Limiter) reserve(ctx context.Context, counters []counter) (func(outcome) error, error) {
	waitCtx, cancel := context.WithTimeout(ctx, QueueTimeout)
	defer cancel()
	id := base64.RawURLEncoding.EncodeToString(oauth2.RandomBytes(9))
	for interval := minPollInterval; ; interval = min(2*interval, maxPollInterval) {
		until := store.Now(l.Store).Add(attemptLifetime)
		err := l.updateTallies(waitCtx, counters, func(c counter, t *tally) error {
			now := store.Now(l.Store)
			t.removeExpired(now.Add(-maxClockSkew))
			t.removeAttempt(id) // reserved before in a step that was not atomic
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

// waitForPoll waits before the next poll of a counter.
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

// countReserved counts a reserved attempt, even if the client disconnected to avoid that. If it took too long,
// other attempts may have replaced it: then it is not counted, and its error must replace the result.
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
		case isExpired(): // and not yet counted in a step that was not atomic
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

// updateTallies alters the tallies of counters in one step. Errors of update are final only for stored
// tallies, which take another round trip than cached tallies of a shared store.
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

// updateLocalTallies is like updateTallies, but for a store of this process: attempts are in memory, and only changed
// tallies are written. It requires the turns of the counters. Attempts end even if writing fails.
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
				continue // another server of this process changed the counter during a reload
			}
		}
		for i, c := range counters {
			l.reservations.setAttempts(c, attempts[i])
		}
		return err
	}
	return newBusyError(errors.New("lockout counters: too many conflicting updates in this process"))
}

// setAttempts replaces the attempts of a counter in memory. It requires the turn of the counter.
func (s *reservations) setAttempts(c counter, attempts []attempt) {
	if of := s.attempts[c.stripe()]; len(attempts) > 0 {
		of[c.key] = attempts
	} else {
		delete(of, c.key)
	}
}

// discardAttempt removes an attempt from memory after its counters could not be read.
func (l *Limiter) discardAttempt(ctx context.Context, counters []counter, id string) {
	done, err := l.reservations.lockStripes(ctx, counters)
	if err != nil {
		return // expires after attemptLifetime
	}
	defer done()
	for _, c := range counters {
		attempts := slices.Clone(l.reservations.attempts[c.stripe()][c.key])
		l.reservations.setAttempts(c, slices.DeleteFunc(attempts, func(t attempt) bool { return t.ID == id }))
	}
}

// replaceCalls returns the calls that replace the stored tallies with the altered ones.
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

// tallyOrEmpty returns a stored tally, or an empty one for nil.
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

// tally contains the failed attempts of a counter and the end of its wait.
type tally struct {
	Failures  int          `json:"failures"`
	WaitUntil time.Time    `json:"until,omitzero"`
	Owners    []ownerTally `json:"owners,omitempty"` // latest owners
	Attempts  []attempt    `json:"tries,omitempty"`  // running attempts, if several gateways share the store
}

// attempt is a running attempt of a gateway.
type attempt struct {
	ID        string    `json:"id"`
	ExpiresAt time.Time `json:"until"` // time after which its result is discarded
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

// stripeCount is the number of groups of counters. Within a group, this process makes one change at a time.
const stripeCount = 64

// outcome is the outcome of an attempt.
type outcome int

const (
	outcomeUndecided outcome = iota // not made, or failed for a reason other than a wrong secret
	outcomeSucceeded
	outcomeFailed
)

func (t *tally) remainingWait(now time.Time) time.Duration { return max(0, t.WaitUntil.Sub(now)) }

// countOutcome counts the outcome of an attempt.
func (t *tally) countOutcome(c counter, o outcome, maxWait time.Duration, now time.Time) {
	switch o {
	case outcomeFailed:
		t.countFailure(c.owner, c.limit, maxWait, now)
	case outcomeSucceeded:
		t.resetFailures(c.owner)
	}
}

// countFailure counts a failure; the first limit failures are free.
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

// resetFailures resets an owner's failures and reports whether there were any.
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

// removeAttempt removes an attempt and reports whether it was present.
func (t *tally) removeAttempt(id string) bool {
	before := len(t.Attempts)
	t.Attempts = slices.DeleteFunc(t.Attempts, func(u attempt) bool { return u.ID == id })
	return len(t.Attempts) < before
}

// removeExpired removes the attempts of crashed gateways.
func (t *tally) removeExpired(now time.Time) {
	t.Attempts = slices.DeleteFunc(t.Attempts, func(u attempt) bool { return now.After(u.ExpiresAt) })
}

func (c counter) stripe() int { return int(c.bucket) % stripeCount }

// countersPerKind is the number of counters per kind. Names and addresses share counters by hash,
// whether or not the user exists: floods of names use no more space, and counting does not reveal
// which names exist. Sharing a counter may cause an earlier wait. The hash is keyed, so that
// attackers cannot choose an address that shares a hospital's counter.
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

// Kinds of secrets that can be guessed.
const (
	KindPassword = "password"
	KindCode     = "code"
	kindSecret   = "secret" // a client secret or registration token
)

// deviceLimitFactor is the factor between the failures of one known browser and of all known browsers of
// an account, so that several cookies are worth little more than one.
const deviceLimitFactor = 2

// Counters returns the counters of an attempt, and whether the browser is known for the account. For a
// known browser these are its own and the counter of all known browsers, otherwise the account's and
// the address's. A success resets only the failures of the account (if none, of the name) in this
// browser, because other accounts or spellings with the same counter may be the attacker's own.
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

const maxNameBytes = 256 // significant bytes of a typed name

// CanonicalName returns the same text for all similar-looking spellings of a name, so that
// spellings gain no further attempts. Sign-in itself compares names exactly.
func CanonicalName(name string) string {
	name = name[:min(len(name), maxNameBytes)]
	return cases.Fold().String(strings.TrimSpace(norm.NFKC.String(name)))
}
