package breaker_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store/storetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/breaker"
)

// timeout is the timeout of the tests' store.
const timeout = 2 * time.Second

// stallingStore is a store that may respond late or not at all.
type stallingStore struct {
	store.SharedStore
	stalls atomic.Bool // the store does not respond
	reads  atomic.Bool // the store is read-only
	slow   func()      // called by List
	err    error
	calls  atomic.Int64
}

func (s *stallingStore) Do(ctx context.Context, calls ...*store.Call) error {
	if s.reads.Load() && calls[0].Op == store.Delete {
		return fmt.Errorf("%w: NOREPLICAS", store.ErrUnavailable)
	}
	if err := s.answer(ctx); err != nil {
		return err
	}
	return s.SharedStore.Do(ctx, calls...)
}

func (s *stallingStore) List(ctx context.Context, prefix string) ([]string, error) {
	if s.slow != nil {
		s.slow()
	}
	return s.SharedStore.List(ctx, prefix)
}

func (s *stallingStore) answer(ctx context.Context) error {
	if s.calls.Add(1); s.err != nil {
		return s.err
	}
	if !s.stalls.Load() {
		return nil
	}
	select {
	case <-time.After(timeout):
	case <-ctx.Done():
	}
	return fmt.Errorf("%w: i/o timeout", store.ErrUnavailable)
}

type harness struct {
	*stallingStore
	breaker  *breaker.Breaker
	log      strings.Builder
	observed []string
	mu       sync.Mutex
}

func newHarness() *harness {
	h := &harness{stallingStore: &stallingStore{SharedStore: storetest.NewSharedMemory("revoked").Gateway()}}
	h.breaker = breaker.New(h.stallingStore, slog.New(slog.NewTextHandler(&h.log, nil)), func(_ context.Context, operation string, outcome breaker.Outcome, took time.Duration) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.observed = append(h.observed, fmt.Sprint(operation, " ", outcome, " ", took))
	})
	return h
}

// get calls the store and returns the duration of the call and whether the store responded.
func (h *harness) get(ctx context.Context) (took time.Duration, answered bool) {
	began := time.Now()
	_, err := h.breaker.Get(ctx, "code:1")
	return time.Since(began), errors.Is(err, store.ErrNotFound)
}

func (h *harness) lines() int { return strings.Count(h.log.String(), "\n") }

// A store that does not respond gets one probe at a time, and all requests fail immediately. The outage is logged once when it
// starts and once when it ends.
func TestOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, ctx := newHarness(), t.Context()
		h.stalls.Store(true)
		for range 3 {
			if took, answered := h.get(ctx); answered || took != timeout {
				t.Errorf("not answered within %v: %t", took, answered)
			}
		}
		before := h.calls.Load()
		for range 100 { // a period of three probes of 2 s each
			if took, answered := h.get(ctx); answered || took != 0 {
				t.Errorf("while the store is down: %t after %v", answered, took)
			}
			time.Sleep(60 * time.Millisecond)
		}
		if probes := h.calls.Load() - before; probes != 3 {
			t.Errorf("%d calls in 6 s", probes)
		}
		h.stalls.Store(false)
		time.Sleep(3 * time.Second)
		h.get(ctx)
		synctest.Wait()
		for range 10 {
			if took, answered := h.get(ctx); !answered || took != 0 {
				t.Errorf("when the store is back: %t after %v", answered, took)
			}
		}
		if h.lines() != 2 || !strings.Contains(h.log.String(), "i/o timeout") || !strings.Contains(h.log.String(), `store available again" after=13s`) {
			t.Errorf("%d lines:\n%s", h.lines(), h.log.String())
		}
	})
}

// A read-only store is treated as down until it accepts changes. The result of an earlier call does not end the outage.
func TestReadOnlyStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, ctx := newHarness(), t.Context()
		h.reads.Store(true)
		slow := make(chan struct{})
		h.slow = func() { <-slow }
		go func() { _, _ = h.breaker.List(ctx, "") }()
		synctest.Wait()
		for range 3 {
			_ = h.breaker.Delete(ctx, "code:1")
		}
		close(slow)
		for range 100 {
			time.Sleep(100 * time.Millisecond)
			h.get(ctx)
		}
		if h.lines() != 1 {
			t.Errorf("%d lines while it takes no changes:\n%s", h.lines(), h.log.String())
		}
		h.reads.Store(false)
		time.Sleep(time.Second)
		h.get(ctx)
		synctest.Wait()
		if _, answered := h.get(ctx); !answered || h.lines() != 2 {
			t.Errorf("when it takes changes: %t, %d lines:\n%s", answered, h.lines(), h.log.String())
		}
	})
}

// A few failures, errors that are results, and canceled calls do not start an outage.
func TestNoOutage(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		do   func(context.Context, *harness)
	}{
		{"two failures, then an answer", func(ctx context.Context, h *harness) {
			for range 3 {
				for _, stalls := range []bool{true, true, false} {
					h.stalls.Store(stalls)
					h.get(ctx)
				}
			}
		}},
		{"callers that give up", func(ctx context.Context, h *harness) {
			h.stalls.Store(true)
			for range 5 {
				short, cancel := context.WithTimeout(ctx, time.Second)
				h.get(short)
				cancel()
			}
		}},
		{"another error", func(ctx context.Context, h *harness) {
			h.err = errors.New("unknown command")
			for range 5 {
				h.get(ctx)
			}
		}},
		{"a full store", func(ctx context.Context, h *harness) {
			h.err = store.ErrFull
			for range 5 {
				h.get(ctx)
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h := newHarness()
				tt.do(t.Context(), h)
				h.err = nil
				h.stalls.Store(false)
				if took, answered := h.get(t.Context()); !answered || took != 0 || h.lines() > 0 {
					t.Errorf("afterwards: %t after %v\n%s", answered, took, h.log.String())
				}
			})
		})
	}
}

// The number of concurrent calls to a slow store is limited.
func TestTooManyCalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, slow := newHarness(), make(chan struct{})
		h.slow = func() { <-slow }
		var all sync.WaitGroup
		for range breaker.MaxCalls {
			all.Go(func() { _, _ = h.breaker.List(t.Context(), "") })
		}
		synctest.Wait()
		if took, answered := h.get(t.Context()); took != 0 || answered {
			t.Errorf("one more call: %t after %v", answered, took)
		}
		close(slow)
		all.Wait()
		if _, answered := h.get(t.Context()); !answered || h.lines() > 0 {
			t.Errorf("later: %t\n%s", answered, h.log.String())
		}
	})
}

// The subscription to the store detects the end of an outage even if there are no requests.
func TestFollowerFindsStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHarness()
		h.stalls.Store(true)
		for range 3 {
			h.get(t.Context())
		}
		h.stalls.Store(false)
		time.Sleep(time.Second)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = h.breaker.Subscribe(ctx, func(store.Update) {})
		}()
		time.Sleep(3 * time.Second)
		stop()
		<-done
		if h.lines() != 2 {
			t.Errorf("%d lines:\n%s", h.lines(), h.log.String())
		}
	})
}

func TestOperationsAreObserved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, ctx := newHarness(), t.Context()
		b := h.breaker
		_ = b.Put(ctx, "k", []byte("v"), time.Minute)
		_ = b.Add(ctx, "k", nil, time.Minute)
		_ = b.Swap(ctx, "k", []byte("v"), []byte("w"), time.Minute)
		_ = b.Append(ctx, "k", []byte("x"), 9, time.Minute)
		if value, err := b.Get(ctx, "k"); string(value) != "wx" || err != nil {
			t.Errorf("Get: %q, %v", value, err)
		}
		if keys, err := b.List(ctx, ""); len(keys) != 1 || err != nil {
			t.Errorf("List: %q, %v", keys, err)
		}
		if value, err := b.Take(ctx, "k"); string(value) != "wx" || err != nil {
			t.Errorf("Take: %q, %v", value, err)
		}
		_ = b.Delete(ctx, "k")
		_ = b.Do(ctx, &store.Call{Op: store.Get, Key: "k"})
		h.err = store.ErrFull
		_, _ = b.Get(ctx, "k")
		h.err = errors.New("unknown command")
		_, _ = b.Get(ctx, "k")
		h.err = nil
		h.stalls.Store(true)
		for range 4 {
			if _, err := b.Get(ctx, "k"); !errors.Is(err, store.ErrUnavailable) {
				t.Error(err)
			}
		}
		want := "put answered 0s,add answered 0s,swap answered 0s,append answered 0s,get answered 0s,list answered 0s,take answered 0s,delete answered 0s,step answered 0s,get full 0s,get failed 0s,get unavailable 2s,get unavailable 2s,get unavailable 2s,get rejected 0s"
		if got := strings.Join(h.observed, ","); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	})
}
