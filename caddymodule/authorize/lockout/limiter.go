package lockout

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/browser"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/boundedcache"
)

// Limiter counts failed attempts in a [store.Store] and delays further ones. With a
// [store.Shared] one, several gateways allow no more attempts than one.
type Limiter struct {
	Policy
	Store   store.Store      // holds the counts
	Keys    keyring.Sealing  // name the counts
	Devices *browser.Devices // are counted apart
	Trail   *audit.Recorder  // records who must wait
	Logger  *slog.Logger     // gets what could not be counted

	reservations reservations

	// uncounted counts failures that could not be stored, for everybody together: a full
	// or broken store makes guessing slow, not free.
	mu        sync.Mutex
	uncounted tally
}

// reservations is the in-memory state of counters.
type reservations struct {
	once    sync.Once
	turns   [stripes]*semaphore.Weighted // for one change at a time, so that a gateway does not compete with itself
	waiting [stripes]atomic.Int32

	// tries are those under way, by the counter's key, where the store is this process's alone. Its turn guards each.
	tries [stripes]map[string][]try

	// seen are the stored tallies as they were lately, where the store is shared. Rarely has another gateway changed
	// them since, so that a change takes one round trip.
	seen boundedcache.Cache[string, []byte]
}

// wait is how long a counter must wait.
func (l *Limiter) wait(t *tally, now time.Time) error {
	if wait := max(t.wait(now), l.uncountedWait()); wait > 0 {
		return &WaitError{Wait: wait}
	}
	return nil
}

// notCounted notes an attempt whose outcome could not be stored.
func (l *Limiter) notCounted(ctx context.Context, o outcome, err error) {
	l.Logger.ErrorContext(ctx, "a try to sign in was not counted", "error", err)
	if o == failed {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.uncounted.fail("", l.Failures, l.MaxWait, time.Now())
	}
}

func (l *Limiter) uncountedWait() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.uncounted.wait(time.Now())
}

// turn waits for the turns of counters, in an order that is the same for all.
func (s *reservations) turn(ctx context.Context, counters []counter) (done func(), err error) {
	var taken []int
	for _, c := range counters {
		taken = append(taken, c.stripe())
	}
	slices.Sort(taken)
	taken = slices.Compact(taken)
	for i, stripe := range taken {
		if err := s.turns[stripe].Acquire(ctx, 1); err != nil {
			s.release(taken[:i])
			return nil, err
		}
	}
	return func() { s.release(taken) }, nil
}

func (s *reservations) release(taken []int) {
	for _, stripe := range taken {
		s.turns[stripe].Release(1)
	}
}

func (s *reservations) lastSeen(counters []counter) [][]byte {
	held := make([][]byte, len(counters))
	for i, c := range counters {
		held[i], _ = s.seen.Get(c.key)
	}
	return held
}
