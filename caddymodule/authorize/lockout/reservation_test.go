package lockout

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store/storetest"
)

// sharedStore is a store with a clock and delays, like a remote one. It counts steps.
type sharedStore struct {
	*storetest.InterceptedStore
	slow  func() time.Duration
	steps atomic.Int32
}

func newSharedStore(slow func() time.Duration) *sharedStore {
	return &sharedStore{InterceptedStore: storetest.NewInterceptedStore(nil), slow: slow}
}

func (s *sharedStore) Now() time.Time { return time.Now() }

func (s *sharedStore) Do(ctx context.Context, calls ...*store.Call) error {
	s.steps.Add(1)
	time.Sleep(s.slow())
	defer func() { time.Sleep(s.slow()) }()
	return s.InterceptedStore.Do(ctx, calls...)
}

func noDelay() time.Duration { return 0 }

// gateways returns n limiters that share a store, one per gateway.
func gateways(n int, s store.Store) []*Limiter {
	var all []*Limiter
	for range n {
		l := &Limiter{Store: s, Logger: slog.New(slog.DiscardHandler)}
		if err := l.Complete(); err != nil {
			panic(err)
		}
		all = append(all, l)
	}
	return all
}

// userCounters returns the counters of a user and an address.
func userCounters(name, address string) []counter {
	bucket := func(text string) (n uint16) {
		for _, c := range text {
			n = 31*n + uint16(c)
		}
		return n % countersPerKind
	}
	return []counter{
		{key: "lockout:password:" + name, bucket: bucket(name), limit: defaultFailures, owner: name},
		{key: "lockout:address:" + address, bucket: bucket(address), limit: 10 * defaultFailures},
	}
}

var errWrong = errors.New("wrong")

// slowWrongPassword returns a slow check that fails with errWrong. made counts its calls.
func slowWrongPassword(made *atomic.Int32, takes time.Duration) func() error {
	return func() error {
		made.Add(1)
		time.Sleep(takes)
		return errWrong
	}
}

// With concurrent attempts, several gateways permit as many wrong passwords as a single one.
func TestSharedTriesAtOnce(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 2, 3, 7} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				all := gateways(n, newSharedStore(func() time.Duration { return rand.N(2 * time.Millisecond) }))
				var made, refused atomic.Int32
				var wg sync.WaitGroup
				for i := range 100 {
					wg.Go(func() {
						err := all[i%n].Attempt(t.Context(), userCounters("alice", fmt.Sprint(i)), errWrong, slowWrongPassword(&made, 10*time.Millisecond))
						if _, refusal := errors.AsType[*WaitError](err); refusal {
							refused.Add(1)
						}
					})
				}
				wg.Wait()
				if made.Load() != 10 || refused.Load() != 90 {
					t.Errorf("%d attempts ran, %d were throttled", made.Load(), refused.Load())
				}
			})
		})
	}
}

// Several gateways permit as many attempts from an address, for any users, as a single one.
func TestSharedTriesOfAddress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		all := gateways(3, newSharedStore(noDelay))
		var made atomic.Int32
		for i := range 200 {
			_ = all[i%3].Attempt(t.Context(), userCounters(fmt.Sprint(i), "192.0.2.1"), errWrong, slowWrongPassword(&made, 0))
		}
		if made.Load() != 10*defaultFailures {
			t.Errorf("%d were made", made.Load())
		}
	})
}

// With continuous attempts, several gateways permit no more attempts than a single one.
func TestSharedTriesOverTime(t *testing.T) {
	t.Parallel()
	tried := func(n int, seed uint64) (made int32) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			all := gateways(n, newSharedStore(func() time.Duration { return 0 }))
			ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
			defer cancel()
			var count atomic.Int32
			var wg sync.WaitGroup
			for i := range 21 {
				pause := 100*time.Millisecond + time.Duration(random.IntN(50))*time.Millisecond
				wg.Go(func() {
					for ctx.Err() == nil {
						_ = all[i%n].Attempt(ctx, userCounters("alice", fmt.Sprint(i)), errWrong, slowWrongPassword(&count, time.Millisecond))
						time.Sleep(pause)
					}
				})
			}
			wg.Wait()
			made = count.Load()
		})
		return made
	}
	for seed := range uint64(3) {
		// ten immediate attempts, then one after each wait of 1, 2, 4, 8 and 16 seconds
		if one, three := tried(1, seed), tried(3, seed); one != 15 || three != one {
			t.Errorf("seed %d: %d through one, %d through three", seed, one, three)
		}
	}
}

// Whatever the order of events, the number of concurrent attempts never exceeds the number of permitted failures. A correct
// password is never rejected, only delayed.
func TestSharedTriesInAnyOrder(t *testing.T) {
	t.Parallel()
	for seed := range uint64(40) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			wrong := slices.Repeat([]bool{true}, 9) // one failure less than causes a wait
			wrong = append(wrong, make([]bool, 30)...)
			random.Shuffle(len(wrong), func(i, j int) { wrong[i], wrong[j] = wrong[j], wrong[i] })
			var mu sync.Mutex // guards random
			some := func(limit time.Duration) time.Duration {
				mu.Lock()
				defer mu.Unlock()
				return time.Duration(random.Int64N(int64(limit)))
			}
			all := gateways(3, newSharedStore(func() time.Duration { return some(3 * time.Millisecond) }))
			var running, peak atomic.Int32
			var wg sync.WaitGroup
			for i, isWrong := range wrong {
				gateway, start, takes := all[some(3)], some(300*time.Millisecond), some(100*time.Millisecond)
				wg.Go(func() {
					time.Sleep(start)
					want := map[bool]error{true: errWrong}[isWrong]
					err := gateway.Attempt(t.Context(), userCounters("alice", fmt.Sprint(i)), errWrong, func() error {
						peak.Store(max(peak.Load(), running.Add(1)))
						time.Sleep(takes)
						running.Add(-1)
						return want
					})
					if !errors.Is(err, want) {
						t.Errorf("seed %d, wrong %v: %v", seed, isWrong, err)
					}
				})
			}
			wg.Wait()
			if peak.Load() > defaultFailures {
				t.Errorf("seed %d: %d at once", seed, peak.Load())
			}
		})
	}
}

// Concurrent attempts with correct passwords are never rejected.
func TestSharedTriesWhenRight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSharedStore(func() time.Duration { return time.Millisecond })
		all := gateways(3, s)
		var wg sync.WaitGroup
		for i := range 60 {
			wg.Go(func() {
				err := all[i%3].Attempt(t.Context(), userCounters("alice", "192.0.2.1"), errWrong, func() error {
					time.Sleep(100 * time.Millisecond)
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if tallies, err := all[0].loadTallies(t.Context(), userCounters("alice", "192.0.2.1")); err != nil || string(tallies[0]) != `{"failures":0}` || string(tallies[1]) != `{"failures":0}` {
			t.Errorf("tallies %s, %v", tallies, err)
		}
	})
}

// The reservation of a crashed gateway expires after half a minute.
func TestSharedTryOfCrashedGateway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		all := gateways(2, newSharedStore(noDelay))
		counters := userCounters("alice", "192.0.2.1")
		var made atomic.Int32
		for range defaultFailures - 1 {
			_ = all[0].Attempt(t.Context(), counters, errWrong, slowWrongPassword(&made, 0))
		}
		if _, err := all[0].reserve(t.Context(), counters); err != nil { // the gateway crashes after the reservation
			t.Fatal(err)
		}
		begun := time.Now()
		if err := all[1].Attempt(t.Context(), counters, errWrong, func() error { return nil }); !errors.As(err, new(BusyError)) {
			t.Errorf("while the last try is under way: %v", err)
		}
		time.Sleep(attemptLifetime + maxClockSkew + time.Second - time.Since(begun))
		if err := all[1].Attempt(t.Context(), counters, errWrong, func() error { return nil }); err != nil {
			t.Errorf("afterwards: %v", err)
		}
	})
}

// A gateway that was suspended during an attempt discards the result, because other attempts may have replaced it.
func TestSharedTryPastReservation(t *testing.T) {
	t.Parallel()
	for _, result := range []error{nil, errWrong} {
		synctest.Test(t, func(t *testing.T) {
			l := gateways(1, newSharedStore(noDelay))[0]
			err := l.Attempt(t.Context(), userCounters("alice", "192.0.2.1"), errWrong, func() error {
				time.Sleep(attemptLifetime + time.Second)
				return result
			})
			if !errors.As(err, new(BusyError)) {
				t.Errorf("%v became %v", result, err)
			}
		})
	}
}

// An attempt takes two round trips to the store, or three after a failure at another gateway. A client secret takes one.
func TestSharedRoundTrips(t *testing.T) {
	t.Parallel()
	counters := userCounters("alice", "192.0.2.1")
	attempt := func(l *Limiter, result error) {
		_ = l.Attempt(t.Context(), counters, errWrong, func() error { return result })
	}
	for name, tt := range map[string]struct {
		before func(all []*Limiter)
		do     func(l *Limiter)
		want   int32
	}{
		"right":                         {nil, func(l *Limiter) { attempt(l, nil) }, 2},
		"right, after another's right":  {func(all []*Limiter) { attempt(all[1], nil) }, func(l *Limiter) { attempt(l, nil) }, 4},
		"right again":                   {func(all []*Limiter) { attempt(all[0], nil); attempt(all[1], nil) }, func(l *Limiter) { attempt(l, nil) }, 2},
		"wrong":                         {nil, func(l *Limiter) { attempt(l, errWrong) }, 2},
		"wrong, after another's wrong":  {func(all []*Limiter) { attempt(all[1], errWrong) }, func(l *Limiter) { attempt(l, errWrong) }, 4},
		"a client's wrong secret":       {nil, func(l *Limiter) { _ = l.countAttempt(t.Context(), counters, errWrong) }, 1},
		"a client's right weak secret":  {nil, func(l *Limiter) { _ = l.countAttempt(t.Context(), counters, nil) }, 1},
		"one's right secret, forgiving": {func(all []*Limiter) { _ = all[1].countAttempt(t.Context(), counters, errWrong) }, func(l *Limiter) { _ = l.countAttempt(t.Context(), counters, nil) }, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSharedStore(noDelay)
			all := gateways(2, s)
			if tt.before != nil {
				tt.before(all)
			}
			s.steps.Store(0)
			tt.do(all[0])
			if got := s.steps.Load(); got != tt.want {
				t.Errorf("%d round trips, want %d", got, tt.want)
			}
		})
	}
}

// If the store fails, no attempt is made, and client secrets are rejected.
func TestSharedTriesWithoutStore(t *testing.T) {
	t.Parallel()
	s := newSharedStore(noDelay)
	s.Before = func(string, string) error { return store.ErrUnavailable }
	l := gateways(1, s)[0]
	var made atomic.Int32
	counters := userCounters("alice", "192.0.2.1")
	if err := l.Attempt(t.Context(), counters, errWrong, slowWrongPassword(&made, 0)); !errors.Is(err, store.ErrUnavailable) || made.Load() != 0 {
		t.Errorf("%v, %d made", err, made.Load())
	}
	if err := l.countAttempt(t.Context(), counters, errWrong); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("a secret: %v", err)
	}
}

// Attempts in memory are removed even if the store fails while their outcome is counted.
func TestLocalTriesEndWithoutStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		down := false
		l := gateways(1, storetest.NewInterceptedStore(func(string, string) error {
			if down {
				return store.ErrUnavailable
			}
			return nil
		}))[0]
		for range 2 * defaultFailures {
			down = false
			if err := l.Attempt(t.Context(), userCounters("a", "x"), errWrong, func() error { down = true; return nil }); err != nil {
				t.Fatal(err)
			}
		}
		down = false
		began := time.Now()
		if err := l.Attempt(t.Context(), userCounters("a", "x"), errWrong, func() error { return nil }); err != nil || time.Since(began) > 0 {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

// Two servers that share a file, as during a reload, count every failure.
func TestLocalStoreOfTwoServers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var other *Limiter
		s := storetest.NewInterceptedStore(func(method, _ string) error {
			if method == "Get" || other == nil {
				return nil
			}
			l := other // another limiter counts a failure between this limiter's read and write
			other = nil
			if err := l.Attempt(t.Context(), userCounters("a", "x"), errWrong, func() error { return errWrong }); !errors.Is(err, errWrong) {
				t.Errorf("the other server: %v", err)
			}
			return nil
		})
		both := gateways(2, s)
		other = both[1]
		if err := both[0].Attempt(t.Context(), userCounters("a", "x"), errWrong, func() error { return errWrong }); !errors.Is(err, errWrong) {
			t.Errorf("%v", err)
		}
		stored, err := store.GetJSON[struct {
			Failures int `json:"failures"`
		}](t.Context(), s, "lockout:password:a")
		if err != nil || stored == nil || stored.Failures < 2 {
			t.Errorf("%+v, %v", stored, err)
		}
	})
}

// Attackers cannot predict which names and addresses share a counter, so they cannot choose an address that shares a victim's.
func TestCountersAreUnpredictable(t *testing.T) {
	t.Parallel()
	limiter := func(storage keyring.Storage) *Limiter {
		return &Limiter{Keys: keyring.New(storage, "keys", slog.New(slog.DiscardHandler))}
	}
	storage := new(providertest.Storage)
	ours, replica, unrelated := limiter(storage), limiter(storage), limiter(new(providertest.Storage))
	same := 0
	for i := range 256 {
		var found [3]counter
		for j, s := range []*Limiter{ours, replica, unrelated} {
			var err error
			if found[j], err = s.newCounter(t.Context(), "address", fmt.Sprintf("192.0.2.%d", i), "", 100); err != nil {
				t.Fatal(err)
			}
		}
		if found[0] != found[1] {
			t.Fatalf("replicas count apart: %v, %v", found[0], found[1])
		}
		if found[0] == found[2] {
			same++
		}
	}
	if same > 128 {
		t.Errorf("%d of 256 are the same with other keys", same)
	}
}

// Excessively long names are truncated.
func TestCanonicalNameIsBounded(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("ﷺ", 20_000) // each character expands to 18 characters
	if got := CanonicalName(long); len(got) > 20*maxNameBytes {
		t.Errorf("%d bytes", len(got))
	}
}

// A success resets only the failures of the same account, not those of others that share the counter.
func TestTallyForgives(t *testing.T) {
	t.Parallel()
	fails := func(owners ...string) (t tally) {
		for _, owner := range owners {
			t.countFailure(owner, 100, time.Minute, time.Now())
		}
		return t
	}
	many := []string{"alice"}
	for i := range maxOwners {
		many = append(many, fmt.Sprint(i))
	}
	for _, tt := range []struct {
		name  string
		tally tally
		want  int
	}{
		{"one's own", fails("alice", "alice", "alice"), 0},
		{"another's", fails("mallory", "mallory"), 2},
		{"both", fails("alice", "mallory", "alice"), 1},
		{"an address's", fails("", ""), 2},
		{"forgotten among many", fails(many...), len(many)},
		{"none", fails(), 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.tally.resetFailures("alice")
			if tt.tally.resetFailures("alice") {
				t.Error("forgiven twice")
			}
			if tt.tally.Failures != tt.want || len(tt.tally.Owners) > maxOwners {
				t.Errorf("left are %+v, want %d", tt.tally, tt.want)
			}
		})
	}
}

// Trying many names uses no more store entries than there are counters.
func TestFloodOfNamesIsBounded(t *testing.T) {
	t.Parallel()
	counts, discard := store.NewMemory(0, 0), slog.New(slog.DiscardHandler)
	l := &Limiter{Store: counts, Keys: keyring.New(new(providertest.Storage), "keys", discard), Logger: discard}
	if err := l.Complete(); err != nil {
		t.Fatal(err)
	}
	for i := range 3 * countersPerKind / 2 {
		c, err := l.newCounter(t.Context(), KindPassword, fmt.Sprint(i), "", l.Failures)
		if err != nil {
			t.Fatal(err)
		}
		err = l.Attempt(t.Context(), []counter{c}, errWrong, func() error { return errWrong })
		if _, waits := errors.AsType[*WaitError](err); err == nil || !waits && !errors.Is(err, errWrong) {
			t.Fatal(err)
		}
	}
	keys, err := counts.List(t.Context(), "lockout:")
	if err != nil || len(keys) > countersPerKind || len(keys) < countersPerKind/2 {
		t.Errorf("%d entries, %v", len(keys), err)
	}
}
