package guard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fairqueue"
)

// Many who hold one token make one request; one who leaves takes nothing from
// the others.
func TestIntrospectorFlight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rt, count := counted(func(r *http.Request) (*http.Response, error) {
			select {
			case <-r.Context().Done():
				return nil, r.Context().Err()
			case <-time.After(5 * time.Second):
				return answer(`{"active":true,"sub":"bob"}`), nil
			}
		})
		i := testIntrospector(rt)
		leaving, leave := context.WithCancel(t.Context())
		var group sync.WaitGroup
		group.Go(func() {
			_, err := i.Verify(leaving, "opaque")
			wantError(t, err, http.StatusServiceUnavailable, "", context.Canceled)
		})
		synctest.Wait()
		for range 50 {
			group.Go(func() {
				if _, err := i.Verify(t.Context(), "opaque"); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		leave()
		group.Wait()
		if count.Load() != 1 {
			t.Errorf("%d requests", count.Load())
		}
	})
}

// Who missed the memory just before another flight ended asks no more.
func TestIntrospectorFlightEnded(t *testing.T) {
	t.Parallel()
	rt, count := counted(answering(`{"active":false}`))
	i := testIntrospector(rt)
	wantRefused(t, i, "opaque", errInactive)
	if _, err := i.ask(t.Context(), i.remembranceID("opaque"), "opaque"); err != nil || count.Load() != 1 {
		t.Errorf("%d requests, %v", count.Load(), err)
	}
}

// No more requests are under way than allowed; who waits too long, or comes
// when too many wait, is refused with 503.
func TestIntrospectorConcurrency(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var under, most atomic.Int64
		i := testIntrospector(func(r *http.Request) (*http.Response, error) {
			most.Store(max(most.Load(), under.Add(1)))
			defer under.Add(-1)
			time.Sleep(3 * time.Second)
			return answer(`{"active":true,"sub":"bob"}`), nil
		})
		i.concurrency, i.Network = 2, networkOf
		var group sync.WaitGroup
		var passed, waited, crowded atomic.Int64
		for n := range fairqueue.Places + 50 {
			group.Go(func() {
				switch _, err := i.Verify(from(t, fmt.Sprint(n)), fmt.Sprint(n)); {
				case err == nil:
					passed.Add(1)
				case errors.Is(err, context.DeadlineExceeded):
					waited.Add(1)
				case errors.Is(err, ErrUnavailable):
					crowded.Add(1)
				}
			})
		}
		group.Wait()
		// Two at a time: those that begin at 0 and 3, for at 6 half of the
		// timeout is over.
		if most.Load() != 2 || passed.Load() != 4 || waited.Load() != fairqueue.Places-4 || crowded.Load() != 50 {
			t.Errorf("%d at once, %d passed, %d waited, %d came too late",
				most.Load(), passed.Load(), waited.Load(), crowded.Load())
		}
		if got := i.queue.Taken(); got != 0 {
			t.Errorf("%d wait for ever", got)
		}
	})
}

type networkKey struct{}

// from is the context of a request from a network.
func from(t *testing.T, network string) context.Context {
	return context.WithValue(t.Context(), networkKey{}, network)
}

func networkOf(ctx context.Context) string { return ctx.Value(networkKey{}).(string) }

// However many tokens one network makes up, those of others are asked about at once,
// and places are left to them.
func TestIntrospectorShares(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		i := testIntrospector(func(*http.Request) (*http.Response, error) {
			time.Sleep(time.Second)
			return answer(`{"active":true,"sub":"bob"}`), nil
		})
		i.Network = networkOf
		var group sync.WaitGroup
		var crowded atomic.Int64
		for n := range 2 * fairqueue.Places {
			group.Go(func() {
				if _, err := i.Verify(from(t, "flood"), fmt.Sprint("made up ", n)); errors.Is(err, fairqueue.ErrFull) {
					crowded.Add(1)
				}
			})
		}
		synctest.Wait()
		if got := crowded.Load(); got != 2*fairqueue.Places-fairqueue.Places/2 {
			t.Errorf("%d of the flood are refused", got)
		}
		start := time.Now()
		for n := range defaultConcurrency / 2 {
			group.Go(func() {
				if _, err := i.Verify(from(t, fmt.Sprint(n)), fmt.Sprint("good ", n)); err != nil || time.Since(start) != time.Second {
					t.Errorf("another network's: %v after %v", err, time.Since(start))
				}
			})
		}
		group.Wait()
	})
}

// A failure is not remembered: neither as active nor as refused.
func TestIntrospectorRecovers(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	failure := broken
	i := testIntrospector(func(*http.Request) (*http.Response, error) {
		if failure != nil {
			return nil, failure
		}
		return answer(`{"active":true,"sub":"bob"}`), nil
	})
	now := time.Now()
	i.Now = func() time.Time { return now }
	_, err := i.Verify(t.Context(), "opaque")
	wantError(t, err, http.StatusServiceUnavailable, "", broken)
	failure, now = nil, now.Add(backOffTime)
	if _, err := i.Verify(t.Context(), "opaque"); err != nil {
		t.Error(err)
	}
	failure = broken
	if _, err := i.Verify(t.Context(), "opaque"); err != nil {
		t.Errorf("remembered as active, but %v", err)
	}
}

func TestIntrospectorTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, test := range []struct{ set, want time.Duration }{{0, defaultTimeout}, {time.Second, time.Second}} {
			i := testIntrospector(func(r *http.Request) (*http.Response, error) {
				<-r.Context().Done()
				return nil, r.Context().Err()
			})
			i.timeout = test.set
			start := time.Now()
			_, err := i.Verify(t.Context(), "opaque")
			wantError(t, err, http.StatusServiceUnavailable, "", context.DeadlineExceeded)
			if took := time.Since(start); took != test.want {
				t.Errorf("took %v, want %v", took, test.want)
			}
		}
	})
}
