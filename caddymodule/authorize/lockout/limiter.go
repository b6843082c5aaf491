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

// Limiter counts failed attempts in a [store.Store] and delays subsequent attempts. If several gateways use the same
// [store.SharedStore], together they permit no more attempts than a single gateway.
type Limiter struct {
	Policy
	Store   store.Store           // store for counters
	Keys    keyring.BrowserSealer // keys for hashing the names of counters
	Devices *browser.Devices      // recognizes known browsers, which are counted separately
	Trail   *audit.Recorder       // audit log for throttled attempts
	Logger  *slog.Logger          // log for attempts that could not be counted

	reservations reservations

	// uncountedFailures counts failures that could not be stored, for all accounts together, so that a full or broken store
	// still limits guessing.
	mu                sync.Mutex
	uncountedFailures tally
}

// reservations is the state of counters in memory.
type reservations struct {
	initOnce    sync.Once
	stripeLocks [stripeCount]*semaphore.Weighted // serialize changes by this process, which would otherwise conflict
	waiters     [stripeCount]atomic.Int32

	// attempts contains the running attempts by counter key, for a store of this process. A stripe lock guards each map.
	attempts [stripeCount]map[string][]attempt

	// cachedTallies caches the tallies in a shared store. They rarely change between two attempts, so a change usually takes
	// one round trip.
	cachedTallies boundedcache.Cache[string, []byte]
}

// checkWait returns a [WaitError] if an attempt must wait.
func (l *Limiter) checkWait(t *tally, now time.Time) error {
	if wait := max(t.remainingWait(now), l.uncountedWait()); wait > 0 {
		return &WaitError{Wait: wait}
	}
	return nil
}

// recordUncounted logs that the outcome of an attempt could not be stored, and counts failures in memory.
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

// lockStripes acquires the stripe locks of counters in ascending order, which avoids deadlocks.
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

// Policy configures the delays after failed attempts. Accounts are never locked permanently. After the permitted number of
// failures, each additional failure doubles the wait, from one second up to MaxWait. The defaults permit about a hundred
// guesses per day and account, from any number of computers.
//
// A browser in which the user has signed in before has a separate counter for the account (see [browser.Devices]), and all such
// browsers share another counter. Therefore, failures elsewhere do not lock out the owner. Gateways with a shared store share
// the counters.
type Policy struct {
	// Off disables the limits, for deployments in which a component in front of this server enforces them. Default: false.
	Off bool

	// Failures is the number of consecutive failures after which attempts for an account must wait. It is also the number of
	// wrong secrets after which requests of a client from one network must wait. Default: 10.
	Failures int

	// AddressFailures is the number of failures, for any accounts, after which an IP address (IPv6: its /64) must wait. Wrong
	// client secrets are counted separately. A correct password does not reset the counter, because an attacker may have an
	// account. Default: ten times Failures.
	AddressFailures int

	// MaxWait is the maximum wait. Default: 15 min. Maximum: 24 h.
	MaxWait time.Duration
}

// Defaults and limits of [Policy].
const (
	defaultFailures = 10
	defaultMaxWait  = 15 * time.Minute
	maxMaxWait      = 24 * time.Hour

	// counterRetention is how long a counter is stored after its wait has ended.
	counterRetention = 24 * time.Hour
)

// Complete sets defaults and returns an error if the policy is invalid.
func (l *Policy) Complete() error {
	l.Failures = cmp.Or(l.Failures, defaultFailures)
	l.AddressFailures = cmp.Or(l.AddressFailures, 10*l.Failures)
	l.MaxWait = cmp.Or(l.MaxWait, defaultMaxWait)
	if l.Failures < 0 || l.AddressFailures < 0 {
		return errors.New("lockout: failures and address_failures must not be negative")
	}
	return oauth2.CheckLifetime("lockout: max_wait", l.MaxWait, maxMaxWait)
}

// Attempt calls check, or returns a [WaitError] if the attempt must wait. Only wrongErr is counted as a failure.
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

// countAttempt counts an attempt without a reservation, which ended with err. It returns err, or another error if the attempt
// must wait. It checks and counts in one step.
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
	if errors.Is(countErr, store.ErrFull) { // an attacker must not be able to disable the limit by filling the store
		l.recordUncounted(ctx, outcomeOf(err, err), countErr)
		return err
	}
	if countErr != nil {
		return ConvertQueueError(countErr)
	}
	return err
}

// CountSecretAttempt counts an attempt with a secret, which ended with err. It returns err, or another error after too many
// failures. Failures are counted per network, both for secretOwner (a client or a registration) and in total, so that failures
// in other networks do not block anyone. Failures in the same network do not block a correct secret unless it is guessable. A
// success resets the failures of secretOwner, but not those of the network.
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
	// QueueTimeout is how long an attempt may wait in each of two queues: for other attempts for the same account, and for the
	// password comparison. After that, an error is better than a browser that seems to hang.
	QueueTimeout = 10 * time.Second

	// BusyWait is the Retry-After time of a [BusyError].
	BusyWait = 5 * time.Second
)

// ConvertQueueError converts the error of a queue into a [BusyError], except after the browser has disconnected.
func ConvertQueueError(err error) error {
	if errors.Is(err, fairqueue.ErrFull) || errors.Is(err, context.DeadlineExceeded) {
		return newBusyError(err)
	}
	return err
}

// BusyError means that there are too many concurrent attempts.
type BusyError struct{ error }

func newBusyError(cause error) *oauth2.Error {
	return &oauth2.Error{
		Code: "temporarily_unavailable", Status: http.StatusServiceUnavailable,
		Description: "too many people are signing in right now", Err: BusyError{cause},
	}
}

// WaitError means that an attempt was rejected without a check, because the caller must wait first.
type WaitError struct {
	Wait time.Duration // time until the next attempt is permitted
}

// Error implements error.
func (e *WaitError) Error() string { return "wait " + formatWait(e.Wait) }

// RetryAfter returns how long to wait before retrying after err; 0 if retrying does not help.
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

// formatWait formats a duration, rounded up so that retrying after it is not too early.
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
