package storetest

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// A SharedSuite is the tests of an implementation of [store.Shared], beside those of [Suite].
type SharedSuite struct {
	// New makes an empty store. Each call of what it returns makes another gateway's handle
	// on it, which follows kinds. What is open is for t.Cleanup.
	New func(t *testing.T, kinds ...string) (gateway func() store.Shared)

	// How long entries live in the tests, as in [Suite].
	Lifetime time.Duration
}

// Run runs the tests.
func (s SharedSuite) Run(t *testing.T) {
	for _, tt := range []struct {
		name string
		test func(*testing.T, *shared)
	}{
		{"a follower learns what there is", followsWhole},
		{"a follower learns of each method", followsMethods},
		{"a follower does not learn of what was refused", followsNoRefusal},
		{"a follower learns of steps", followsSteps},
		{"a follower learns within a second", followsAtOnce},
		{"a follower hears that nothing changed", followsNothing},
		{"a follower ends with its context", followsUntilEnd},
		{"two followers agree", followersAgree},
		{"a late follower agrees", lateFollower},
		{"what expired is not reported", followsNoExpired},
		{"the last of many changes is reported last", followsLast},
		{"the clock is the store's", tellsTime},
		{"gateways see each other's entries", gatewaysShare},
		{"one of many takers at several gateways wins", gatewaysRace},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inTime(t, s.Lifetime, func(t *testing.T, lifetime time.Duration) {
				tt.test(t, &shared{s.New(t, "revoked", "cutoff"), lifetime})
			})
		})
	}
}

// shared is a store under test, which follows the kinds revoked and cutoff.
type shared struct {
	gateway  func() store.Shared
	lifetime time.Duration // of its entries
}

func tellsTime(t *testing.T, s *shared) {
	g := s.gateway()
	must(t, g.Put(t.Context(), "k", nil, s.lifetime))
	if off := time.Until(g.Now()).Abs(); off > time.Second {
		t.Errorf("on the same host, the clock is off by %v", off)
	}
	before := store.Now(g)
	time.Sleep(s.lifetime / 4)
	if took := store.Now(g).Sub(before); took < s.lifetime/8 {
		t.Errorf("%v later, it is only %v later", s.lifetime/4, took)
	}
}

func gatewaysShare(t *testing.T, s *shared) {
	a, b := s.gateway(), s.gateway()
	must(t, a.Put(t.Context(), "code:1", []byte("v"), s.lifetime))
	wantValue(t, b, "code:1", "v")
	must(t, b.Delete(t.Context(), "code:1"))
	wantKeys(t, a, "code:")
}

func gatewaysRace(t *testing.T, s *shared) {
	ctx := t.Context()
	gateways := []store.Shared{s.gateway(), s.gateway(), s.gateway()}
	must(t, gateways[0].Put(ctx, "code:1", []byte("v"), s.lifetime))
	turn := make(chan store.Shared, 64)
	for i := range cap(turn) {
		turn <- gateways[i%len(gateways)]
	}
	won := race(func() error {
		_, err := (<-turn).Take(ctx, "code:1")
		return err
	})
	if won != 1 {
		t.Errorf("%d takers got the value", won)
	}
}

// settle waits until all other goroutines of the test wait, or for a time in which a store
// elsewhere will have reported to its followers.
func (s *shared) settle() {
	if s.lifetime >= time.Minute {
		synctest.Wait()
		return
	}
	time.Sleep(s.lifetime / 4)
}

// follow starts a follower at a gateway, until the test ends.
func (s *shared) follow(t *testing.T, g store.Shared) *follower {
	f := &follower{values: map[string]string{}, expires: map[string]time.Time{}}
	ctx, end := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.err = g.Follow(ctx, f.hear)
	}()
	t.Cleanup(func() { end(); <-done })
	f.await(t, "what there is", func() bool { return f.wholes > 0 })
	return f
}
