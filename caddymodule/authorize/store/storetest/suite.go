package storetest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// New makes an empty store that holds at most maxEntries entries, and more of [EndingKind]; what it has open is for
// t.Cleanup. In [Run] it is called within a synctest bubble, so the store must leave no
// goroutine behind.
type New func(t *testing.T, maxEntries int) store.Store

// EndingKind is a kind of entries that a full store must take; see [store.Room].
const EndingKind = "revoked"

// A Suite is the tests of one implementation.
type Suite struct {
	New New // makes the store

	// How long entries live in the tests. Zero: a minute by synctest's clock. A store with
	// connections or goroutines cannot run in a synctest bubble: it needs about a second,
	// which the tests then wait for.
	Lifetime time.Duration

	// LooseBound leaves out the tests of the bound: the store counts its entries only from
	// time to time.
	LooseBound bool
}

// Run tests the stores that newStore makes, by synctest's clock.
func Run(t *testing.T, newStore New) { Suite{New: newStore}.Run(t) }

// Run runs the tests.
func (s Suite) Run(t *testing.T) {
	for _, tt := range slices.Concat(callTests, stepTests, entriesTests) {
		if s.LooseBound && tt.exactBound {
			continue
		}
		t.Run(tt.name, func(t *testing.T) {
			inTime(t, s.Lifetime, func(t *testing.T, lifetime time.Duration) {
				tt.test(t, t.Context(), subject{s.New(t, bound), lifetime})
			})
		})
	}
}

// inTime runs a test by synctest's clock if lifetime is zero, or else beside other tests,
// because it will mostly wait.
func inTime(t *testing.T, lifetime time.Duration, test func(*testing.T, time.Duration)) {
	if lifetime == 0 {
		synctest.Test(t, func(t *testing.T) { test(t, time.Minute) })
		return
	}
	t.Parallel()
	test(t, lifetime)
}

// bound is how many entries fit.
const bound = 8

// A storeTest is a test of a [Suite].
type storeTest struct {
	name       string
	test       func(*testing.T, context.Context, subject)
	exactBound bool // it requires
}

// A subject is a store under test.
type subject struct {
	store.Store
	lifetime time.Duration // of its entries
}

// expire waits until an entry with the lifetime has ended. Stores may round up.
func (s subject) expire() { time.Sleep(s.lifetime + s.lifetime/4) }

func wantKeys(t *testing.T, s store.Store, prefix string, want ...string) {
	t.Helper()
	got, err := s.List(t.Context(), prefix)
	must(t, err)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("List(%q) = %q, want %q", prefix, got, want)
	}
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

func fill(t *testing.T, s subject) {
	t.Helper()
	for i := range 8 {
		must(t, s.Put(t.Context(), fmt.Sprint(i), []byte("v"), s.lifetime))
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
