package lockout

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/browser"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/boundedcache"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fairqueue"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// Limiter counts failed attempts in a [store.Store] and delays further attempts. With a
// [store.SharedStore] store, several gateways permit no more attempts than one.
type Limiter struct {
	Policy
	Store   store.Store           // store for counters
	Keys    keyring.BrowserSealer // keys for the names of counters
	Devices *browser.Devices      // known browsers, counted separately
	Trail   *audit.Recorder       // audit log for throttled attempts
	Logger  *slog.Logger          // log for attempts that could not be counted

	reservations reservations

	// uncounted counts failures that could not be stored, globally: a full or broken store makes
	// guessing slow, not free.
	mu                sync.Mutex
	uncountedFailures tally
}

// reservations is the in-memory state of counters.
type reservations struct {
	initOnce    sync.Once
	stripeLocks [stripeCount]*semaphore.Weighted // serialize changes, so that a gateway does not compete with itself
	waiters     [stripeCount]atomic.Int32

	// attempts are the running attempts by counter key, if the store belongs to this process. Each is guarded by its turn.
	attempts [stripeCount]map[string][]attempt

	// cachedTallies caches the stored tallies of a shared store. They rarely change in between, so a change
	// usually takes one round trip.
	cachedTallies boundedcache.Cache[string, []byte]
}

// checkWait returns a [WaitError] while a counter must wait.
func (l *Limiter) checkWait(t *tally, now time.Time) error {
	if wait := max(t.remainingWait(now), l.uncountedWait()); wait > 0 {
		return &WaitError{Wait: wait}
	}
	return nil
}

// recordUncounted records that the outcome of an attempt could not be stored.
func (l *Limiter) recordUncounted(ctx context.Context, o outcome, err error) {
	l.Logger.ErrorContext(ctx, "failed to count sign-in attempt", "error", err)
	if o == outcomeFailed {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.uncountedFailures.countFailure("", l.Failures, l.MaxWait, time.Now())
	}
}

func (l *Limiter) uncountedWait() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.uncountedFailures.remainingWait(time.Now())
}

// lockStripes waits for the turns of counters in a globally fixed order, which avoids deadlocks.
func (s *reservations) lockStripes(ctx context.Context, counters []counter) (done func(), err error) {
	var locked []int
	for _, c := range counters {
		locked = append(locked, c.stripe())
	}
	slices.Sort(locked)
	locked = slices.Compact(locked)
	for i, stripe := range locked {
		if err := s.stripeLocks[stripe].Acquire(ctx, 1); err != nil {
			s.unlockStripes(locked[:i])
			return nil, err
		}
	}
	return func() { s.unlockStripes(locked) }, nil
}

func (s *reservations) unlockStripes(locked []int) {
	for _, stripe := range locked {
		s.stripeLocks[stripe].Release(1)
	}
}

func (s *reservations) cachedValues(counters []counter) [][]byte {
	values := make([][]byte, len(counters))
	for i, c := range counters {
		values[i], _ = s.cachedTallies.Get(c.key)
	}
	return values
}

// Policy configures the delays after failed attempts. Accounts are never locked permanently: each
// failure beyond the free ones doubles the wait, from one second up to MaxWait. The defaults
// permit about a hundred guesses a day per account, from any number of computers.
//
// A browser in which the user has signed in before has its own counter for the account (see
// [browser.Devices]), and all such browsers share another counter, so that failures elsewhere do not
// lock out the owner. Gateways with a shared store share the counters.
type Policy struct {
	// Off disables the limits, if a component in front of this server enforces them. Default: false.
	Off bool

	// Failures is the number of consecutive failures after which an account must wait, and of wrong
	// secrets after which a client in one network must wait. Default: 10.
	Failures int

	// AddressFailures is the number of failures for any accounts after which an IP address (IPv6:
	// its /64) must wait. Wrong client secrets are counted separately. A correct password does not
	// reset the counter, because the attacker may have an account. Default: ten times Failures.
	AddressFailures int

	// MaxWait is the longest wait. Default: 15 min; at most 24 h.
	MaxWait time.Duration
}

// Defaults and limits of [Policy].
const (
	defaultFailures = 10
	defaultMaxWait  = 15 * time.Minute
	maxMaxWait      = 24 * time.Hour

	// counterRetention is the lifetime of a counter after its last wait.
	counterRetention = 24 * time.Hour
)

// Complete sets the defaults and returns an error for an invalid policy.
func (l *Policy) Complete() error {
	l.Failures = cmp.Or(l.Failures, defaultFailures)
	l.AddressFailures = cmp.Or(l.AddressFailures, 10*l.Failures)
	l.MaxWait = cmp.Or(l.MaxWait, defaultMaxWait)
	if l.Failures < 0 || l.AddressFailures < 0 {
		return errors.New("lockout: failures and address_failures must not be negative")
	}
	return oauth2.CheckLifetime("lockout: max_wait", l.MaxWait, maxMaxWait)
}

// Attempt calls check, or returns a [WaitError] if a counter must wait. Only wrongErr counts as a failure.
func (l *Limiter) Attempt(ctx context.Context, counters []counter, wrongErr error, check func() error) (err error) {
	if l.Off {
		return check()
	}
	end, err := l.reserve(ctx, counters)
	if err != nil {
		return err
	}
	outcome := outcomeUndecided
	defer func() {
		if endErr := end(outcome); endErr != nil {
			err = endErr
		}
	}()
	err = check()
	outcome = outcomeOf(err, wrongErr)
	return err
}

func outcomeOf(err, wrongErr error) outcome {
	switch {
	case err == nil:
		return outcomeSucceeded
	case errors.Is(err, wrongErr):
		return outcomeFailed
	}
	return outcomeUndecided
}

// countAttempt counts an attempt that ended with err and returns err, or rejects the attempt. Without a
// reservation, it is admitted and counted in one step.
func (l *Limiter) countAttempt(ctx context.Context, counters []counter, err error) error {
	if l.Off {
		return err
	}
	countErr := l.updateTallies(ctx, counters, func(c counter, t *tally) error {
		now := store.Now(l.Store)
		if err := l.checkWait(t, now); err != nil {
			return err
		}
		t.countOutcome(c, outcomeOf(err, err), l.MaxWait, now)
		return nil
	})
	if errors.Is(countErr, store.ErrFull) { // filling the store must not disable the limit
		l.recordUncounted(ctx, outcomeOf(err, err), countErr)
		return err
	}
	if countErr != nil {
		return ConvertQueueError(countErr)
	}
	return err
}

// CountSecretAttempt counts an attempt that ended with err, and returns err, or a rejection after too many
// failures. Failures are counted per network, both for this client or registration and in total, so
// that failures elsewhere do not block anyone. Failures in the same network do not block a correct secret that
// cannot be guessed. A success resets the failures of its client, not of the network.
func (l *Limiter) CountSecretAttempt(r *http.Request, secretOwner string, err error, guessable bool) error {
	if err == nil && !guessable {
		return nil
	}
	counters, counterErr := l.secretCounters(r.Context(), secretOwner)
	if counterErr != nil {
		return counterErr
	}
	err = l.countAttempt(r.Context(), counters, err)
	if wait, ok := errors.AsType[*WaitError](err); ok {
		err = &oauth2.Error{
			Code: "temporarily_unavailable", Status: http.StatusTooManyRequests,
			Description: "too many wrong client secrets from your network", Err: wait,
		}
		l.Trail.RecordRejection(r, audit.Event{Kind: audit.KindLockout, Err: err})
	}
	return err
}

func (l *Limiter) secretCounters(ctx context.Context, secretOwner string) ([]counter, error) {
	network := fairqueue.Network(audit.ClientAddress(ctx))
	name := secretOwner + "\x00" + network
	pair, err1 := l.newCounter(ctx, kindSecret, name, name, l.Failures)
	address, err2 := l.newCounter(ctx, kindSecret+"-address", network, "", l.AddressFailures)
	return []counter{pair, address}, errors.Join(err1, err2)
}

const (
	// QueueTimeout is the maximum time of a password in each of two queues: for other attempts at the same
	// account, and for the comparison. After that, any response is better than a browser that seems to hang.
	QueueTimeout = 10 * time.Second

	// BusyWait is the retry time after a [BusyError].
	BusyWait = 5 * time.Second
)

// ConvertQueueError converts a queue's error into a [BusyError], unless the browser has disconnected.
func ConvertQueueError(err error) error {
	if errors.Is(err, fairqueue.ErrFull) || errors.Is(err, context.DeadlineExceeded) {
		return newBusyError(err)
	}
	return err
}

// BusyError rejects an attempt because of too many concurrent attempts.
type BusyError struct{ error }

func newBusyError(cause error) *oauth2.Error {
	return &oauth2.Error{
		Code: "temporarily_unavailable", Status: http.StatusServiceUnavailable,
		Description: "too many people are signing in right now", Err: BusyError{cause},
	}
}

// WaitError rejects an attempt before its check.
type WaitError struct {
	Wait time.Duration // time until the next attempt
}

// Error implements error.
func (e *WaitError) Error() string { return "wait " + formatWait(e.Wait) }

// RetryAfter returns the time to wait after a rejection; 0 if waiting does not help.
func RetryAfter(err error) time.Duration {
	var wait *WaitError
	switch {
	case errors.As(err, &wait):
		return wait.Wait
	case errors.As(err, new(BusyError)):
		return BusyWait
	}
	return 0
}

// SetRetryAfter sets the Retry-After header (RFC 9110 §10.2.3).
func SetRetryAfter(w http.ResponseWriter, wait time.Duration) {
	w.Header().Set("Retry-After", strconv.Itoa(ceilSeconds(wait)))
}

func ceilSeconds(wait time.Duration) int { return int(math.Ceil(wait.Seconds())) }

// formatWait formats a duration, rounded up so that people do not retry too early.
func formatWait(wait time.Duration) string {
	seconds := ceilSeconds(wait)
	switch minutes := (seconds + 59) / 60; {
	case seconds == 1:
		return "a second"
	case seconds < 60:
		return strconv.Itoa(seconds) + " seconds"
	case minutes == 1:
		return "a minute"
	default:
		return strconv.Itoa(minutes) + " minutes"
	}
}
