// Package storetest holds the tests that every [store.Store] must pass, and [Intercepted], a
// store that fails where a test says so.
package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// New makes an empty store that holds at most maxEntries entries. It is called
// within a synctest bubble, so the store must leave no goroutine behind; what it
// has open is for t.Cleanup.
type New func(t *testing.T, maxEntries int) store.Store

const lifetime = time.Minute

// Run tests the stores that newStore makes.
func Run(t *testing.T, newStore New) {
	tests := []struct {
		name string
		test func(*testing.T, context.Context, store.Store)
	}{
		{"put then get", putThenGet},
		{"put replaces", putReplaces},
		{"a value is a copy", valueIsCopy},
		{"add refuses a taken key", addRefuses},
		{"add succeeds after expiry", addAfterExpiry},
		{"get after expiry finds nothing", getAfterExpiry},
		{"swap what is there", swapReplaces},
		{"swap refuses what changed", swapRefuses},
		{"take once", takeOnce},
		{"take after expiry finds nothing", takeAfterExpiry},
		{"delete", deleteRemoves},
		{"list by prefix", listByPrefix},
		{"list leaves out what expired", listAfterExpiry},
		{"full refuses and keeps", fullRefuses},
		{"full makes room by expiry", fullMakesRoom},
		{"one of many takers wins", takersRace},
		{"one of many adders wins", addersRace},
		{"one of many swappers wins", swappersRace},
		{"many keys at once", manyKeys},
		{"append to what is there", appendGrows},
		{"append refuses what is too long", appendRefuses},
		{"append after expiry starts anew", appendAfterExpiry},
		{"no item of many appenders is lost", appendersRace},
		{"a step does all its calls", stepDoesAll},
		{"a step that fails changes nothing", failedStep},
		{"a step is too much for a full store", stepFull},
		{"one of many steps wins", stepsRace},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { tt.test(t, t.Context(), newStore(t, 8)) })
		})
	}
}

func putThenGet(t *testing.T, ctx context.Context, s store.Store) {
	must(t, s.Put(ctx, "k", []byte("v"), lifetime))
	wantValue(t, s, "k", "v")
	if _, err := s.Get(ctx, "other"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("Get of a key never put: %v", err)
	}
}

func putReplaces(t *testing.T, ctx context.Context, s store.Store) {
	must(t, s.Put(ctx, "k", []byte("old"), lifetime))
	must(t, s.Put(ctx, "k", []byte("new"), 2*lifetime))
	time.Sleep(lifetime + time.Second)
	wantValue(t, s, "k", "new")
}

func valueIsCopy(t *testing.T, ctx context.Context, s store.Store) {
	v := []byte("v")
	must(t, s.Put(ctx, "k", v, lifetime))
	v[0] = 'x'
	got, err := s.Get(ctx, "k")
	must(t, err)
	got[0] = 'y'
	wantValue(t, s, "k", "v")
}

func addRefuses(t *testing.T, ctx context.Context, s store.Store) {
	must(t, s.Add(ctx, "k", []byte("first"), lifetime))
	if err := s.Add(ctx, "k", []byte("second"), lifetime); !errors.Is(err, store.ErrExists) {
		t.Errorf("second Add: %v", err)
	}
	wantValue(t, s, "k", "first")
}

func addAfterExpiry(t *testing.T, ctx context.Context, s store.Store) {
	must(t, s.Add(ctx, "k", []byte("first"), lifetime))
	time.Sleep(lifetime + time.Second)
	must(t, s.Add(ctx, "k", []byte("second"), lifetime))
	wantValue(t, s, "k", "second")
}

func getAfterExpiry(t *testing.T, ctx context.Context, s store.Store) {
	must(t, s.Put(ctx, "k", []byte("v"), lifetime))
	time.Sleep(lifetime - time.Second)
	wantValue(t, s, "k", "v")
	time.Sleep(2 * time.Second)
	if _, err := s.Get(ctx, "k"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("Get after expiry: %v", err)
	}
}

func swapReplaces(t *testing.T, ctx context.Context, s store.Store) {
	must(t, s.Put(ctx, "k", []byte("old"), lifetime))
	must(t, s.Swap(ctx, "k", []byte("old"), []byte("new"), 2*lifetime))
	time.Sleep(lifetime + time.Second)
	wantValue(t, s, "k", "new")
}

func swapRefuses(t *testing.T, ctx context.Context, s store.Store) {
	must(t, s.Put(ctx, "k", []byte("v"), lifetime))
	for _, old := range []string{"", "w", "vv"} {
		if err := s.Swap(ctx, "k", []byte(old), []byte("new"), lifetime); !errors.Is(err, store.ErrChanged) {
			t.Errorf("Swap for %q: %v", old, err)
		}
	}
	wantValue(t, s, "k", "v")
	time.Sleep(lifetime + time.Second)
	for _, key := range []string{"k", "never"} {
		if err := s.Swap(ctx, key, []byte("v"), []byte("new"), lifetime); !errors.Is(err, store.ErrChanged) {
			t.Errorf("Swap of nothing: %v", err)
		}
	}
}

func takeOnce(t *testing.T, ctx context.Context, s store.Store) {
	must(t, s.Put(ctx, "k", []byte("v"), lifetime))
	v, err := s.Take(ctx, "k")
	must(t, err)
	if string(v) != "v" {
		t.Errorf("Take: %q", v)
	}
	if _, err := s.Take(ctx, "k"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("second Take: %v", err)
	}
}

func takeAfterExpiry(t *testing.T, ctx context.Context, s store.Store) {
	must(t, s.Put(ctx, "k", []byte("v"), lifetime))
	time.Sleep(lifetime + time.Second)
	if _, err := s.Take(ctx, "k"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("Take after expiry: %v", err)
	}
}

func deleteRemoves(t *testing.T, ctx context.Context, s store.Store) {
	must(t, s.Put(ctx, "k", []byte("v"), lifetime))
	must(t, s.Delete(ctx, "k"))
	if _, err := s.Get(ctx, "k"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("Get after Delete: %v", err)
	}
	must(t, s.Delete(ctx, "k"))
}

func listByPrefix(t *testing.T, ctx context.Context, s store.Store) {
	for _, key := range []string{"session:b", "session:a", "sessions", "code:a"} {
		must(t, s.Put(ctx, key, []byte("v"), lifetime))
	}
	wantKeys(t, s, "session:", "session:a", "session:b")
	wantKeys(t, s, "nothing:")
}

func listAfterExpiry(t *testing.T, ctx context.Context, s store.Store) {
	must(t, s.Put(ctx, "session:short", []byte("v"), lifetime))
	must(t, s.Put(ctx, "session:long", []byte("v"), 3*lifetime))
	time.Sleep(2 * lifetime)
	wantKeys(t, s, "session:", "session:long")
}

func wantKeys(t *testing.T, s store.Store, prefix string, want ...string) {
	t.Helper()
	got, err := s.List(t.Context(), prefix)
	must(t, err)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("List(%q) = %q, want %q", prefix, got, want)
	}
}

func fullRefuses(t *testing.T, ctx context.Context, s store.Store) {
	fill(t, s)
	if err := s.Put(ctx, "more", nil, lifetime); !errors.Is(err, store.ErrFull) {
		t.Errorf("Put into a full store: %v", err)
	}
	if err := s.Add(ctx, "more", nil, lifetime); !errors.Is(err, store.ErrFull) {
		t.Errorf("Add to a full store: %v", err)
	}
	must(t, s.Put(ctx, "0", []byte("again"), lifetime))
	wantValue(t, s, "7", "v")
}

func fullMakesRoom(t *testing.T, ctx context.Context, s store.Store) {
	fill(t, s)
	time.Sleep(lifetime + time.Second)
	must(t, s.Put(ctx, "more", []byte("v"), lifetime))
	wantValue(t, s, "more", "v")
}

func takersRace(t *testing.T, ctx context.Context, s store.Store) {
	must(t, s.Put(ctx, "k", []byte("v"), lifetime))
	if won := race(func() error { _, err := s.Take(ctx, "k"); return err }); won != 1 {
		t.Errorf("%d takers got the value", won)
	}
}

func addersRace(t *testing.T, ctx context.Context, s store.Store) {
	if won := race(func() error { return s.Add(ctx, "k", []byte("v"), lifetime) }); won != 1 {
		t.Errorf("%d adders succeeded", won)
	}
}

func swappersRace(t *testing.T, ctx context.Context, s store.Store) {
	must(t, s.Put(ctx, "k", []byte("old"), lifetime))
	if won := race(func() error { return s.Swap(ctx, "k", []byte("old"), []byte("new"), lifetime) }); won != 1 {
		t.Errorf("%d swappers succeeded", won)
	}
}

// manyKeys also shows that the bound counts each key once, however often it was
// written and removed.
func manyKeys(t *testing.T, ctx context.Context, s store.Store) {
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			key := fmt.Sprint(i)
			for range 4 {
				err := errors.Join(s.Put(ctx, key, []byte("v"), lifetime), s.Swap(ctx, key, []byte("v"), []byte("w"), lifetime), s.Delete(ctx, key))
				if err != nil {
					t.Errorf("key %s: %v", key, err)
				}
			}
		})
	}
	all.Wait()
	fill(t, s)
}

// race calls f from many goroutines at once and counts the successes.
func race(f func() error) int32 {
	var won atomic.Int32
	var all sync.WaitGroup
	start := make(chan struct{})
	for range 64 {
		all.Go(func() {
			<-start
			if f() == nil {
				won.Add(1)
			}
		})
	}
	close(start)
	all.Wait()
	return won.Load()
}

func fill(t *testing.T, s store.Store) {
	t.Helper()
	for i := range 8 {
		must(t, s.Put(t.Context(), fmt.Sprint(i), []byte("v"), lifetime))
	}
}

func wantValue(t *testing.T, s store.Store, key, want string) {
	t.Helper()
	got, err := s.Get(t.Context(), key)
	if err != nil || string(got) != want {
		t.Errorf("Get(%q) = %q, %v; want %q", key, got, err, want)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
