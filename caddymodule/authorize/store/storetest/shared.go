package storetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// A SharedSuite contains the tests for implementations of [store.SharedStore]. They must also pass those of [Suite].
type SharedSuite struct {
	// New creates an empty store. The returned function returns the store as used by another gateway, with followers of the
	// given kinds. Resources are released with t.Cleanup.
	New func(t *testing.T, kinds ...string) (gateway func() store.SharedStore)

	// Lifetime is the lifetime of entries in the tests, as in [Suite].
	Lifetime time.Duration
}

// Run runs the tests as subtests of t.
func (s SharedSuite) Run(t *testing.T) {
	for _, tt := range []struct {
		name string
		test func(*testing.T, *sharedTest)
	}{
		{"follower receives existing entries", testInitialUpdate},
		{"follower receives changes of every method", testUpdatePerMethod},
		{"follower receives no rejected changes", testNoUpdateOnFailure},
		{"follower receives changes of steps", testStepUpdates},
		{"follower receives changes within a second", testUpdateLatency},
		{"follower receives heartbeats without changes", testHeartbeat},
		{"subscription ends with its context", testSubscribeCanceled},
		{"two followers receive the same entries", testFollowersAgree},
		{"late follower receives the same entries", testLateFollower},
		{"expired entries are not reported", testNoExpiredUpdates},
		{"last of many changes is reported last", testLastUpdateWins},
		{"Now returns the time of the store's clock", testServerClock},
		{"gateways share entries", testSharedEntries},
		{"concurrent Take at several gateways succeeds once", testGatewayRace},
	} {
		t.Run(tt.name, func(t *testing.T) {
			runWithClock(t, s.Lifetime, func(t *testing.T, lifetime time.Duration) {
				tt.test(t, &sharedTest{s.New(t, "revoked", "cutoff"), lifetime})
			})
		})
	}
}

// sharedTest is a store under test with followers that receive the kinds revoked and cutoff.
type sharedTest struct {
	gateway  func() store.SharedStore
	lifetime time.Duration // lifetime of entries
}

func testServerClock(t *testing.T, s *sharedTest) {
	g := s.gateway()
	requireNoError(t, g.Put(t.Context(), "k", nil, s.lifetime))
	if off := time.Until(g.Now()).Abs(); off > time.Second {
		t.Errorf("store clock differs by %v on the same host", off)
	}
	before := store.Now(g)
	time.Sleep(s.lifetime / 4)
	if elapsed := store.Now(g).Sub(before); elapsed < s.lifetime/8 {
		t.Errorf("after %v, the store clock advanced by only %v", s.lifetime/4, elapsed)
	}
}

func testSharedEntries(t *testing.T, s *sharedTest) {
	a, b := s.gateway(), s.gateway()
	requireNoError(t, a.Put(t.Context(), "code:1", []byte("v"), s.lifetime))
	wantValue(t, b, "code:1", "v")
	requireNoError(t, b.Delete(t.Context(), "code:1"))
	wantKeys(t, a, "code:")
}

func testGatewayRace(t *testing.T, s *sharedTest) {
	ctx := t.Context()
	gateways := []store.SharedStore{s.gateway(), s.gateway(), s.gateway()}
	requireNoError(t, gateways[0].Put(ctx, "code:1", []byte("v"), s.lifetime))
	nextGateway := make(chan store.SharedStore, 64)
	for i := range cap(nextGateway) {
		nextGateway <- gateways[i%len(gateways)]
	}
	won := countConcurrentSuccesses(func() error {
		_, err := (<-nextGateway).Take(ctx, "code:1")
		return err
	})
	if won != 1 {
		t.Errorf("%d concurrent Take calls succeeded, want 1", won)
	}
}

// waitUntilIdle waits until all other goroutines of the test are blocked. Without synctest, it waits long enough for a remote
// store to notify its followers.
func (s *sharedTest) waitUntilIdle() {
	if s.lifetime >= time.Minute {
		synctest.Wait()
		return
	}
	time.Sleep(s.lifetime / 4)
}

// startFollower starts a follower at a gateway. It runs until the test ends.
func (s *sharedTest) startFollower(t *testing.T, g store.SharedStore) *follower {
	f := &follower{values: map[string]string{}, expires: map[string]time.Time{}}
	ctx, end := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.err = g.Subscribe(ctx, f.recordUpdate)
	}()
	t.Cleanup(func() { end(); <-done })
	f.await(t, "existing entries", func() bool { return f.completeUpdates > 0 })
	return f
}

// A follower records all changes reported to it.
type follower struct {
	mu              sync.Mutex
	values          map[string]string
	expires         map[string]time.Time
	changes         []string // key=value, or only the key for a deletion, in order
	lastQueriedAt   time.Time
	completeUpdates int
	err             error // error of Subscribe; may be read after Subscribe has returned
}

func (f *follower) recordUpdate(u store.Update) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if u.IsComplete {
		f.completeUpdates++
		clear(f.values)
	}
	for _, c := range u.Changes {
		f.expires[c.Key] = c.ExpiresAt
		if c.Value == nil {
			delete(f.values, c.Key)
			f.changes = append(f.changes, c.Key)
			continue
		}
		f.values[c.Key] = string(c.Value)
		f.changes = append(f.changes, c.Key+"="+string(c.Value))
	}
	f.lastQueriedAt = u.QueriedAt
}

// await waits until condition returns true. It fails the test after ten seconds.
func (f *follower) await(t *testing.T, description string, condition func() bool) {
	t.Helper()
	isMet := func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return condition()
	}
	for end := time.Now().Add(10 * time.Second); !isMet(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			f.mu.Lock()
			defer f.mu.Unlock()
			t.Fatalf("timeout waiting for %s; received %q, final entries %q", description, f.changes[max(0, len(f.changes)-20):], f.values)
		}
	}
}

// awaitValues waits until the follower has exactly the values in want.
func (f *follower) awaitValues(t *testing.T, want map[string]string) {
	t.Helper()
	f.await(t, fmt.Sprintf("%q", want), func() bool { return maps.Equal(f.values, want) })
}

func testInitialUpdate(t *testing.T, s *sharedTest) {
	g, ctx := s.gateway(), t.Context()
	requireNoError(t, g.Put(ctx, "revoked:1", []byte("v"), s.lifetime*4))
	requireNoError(t, g.Put(ctx, "cutoff:user:a", nil, s.lifetime*4))
	requireNoError(t, g.Put(ctx, "session:1", []byte("v"), s.lifetime*4))
	f := s.startFollower(t, s.gateway())
	f.awaitValues(t, map[string]string{"revoked:1": "v", "cutoff:user:a": ""})
	if ttl := time.Until(f.expires["revoked:1"]); ttl > 4*s.lifetime+time.Second || ttl < 3*s.lifetime {
		t.Errorf("remaining lifetime is %v, want about %v", ttl, 4*s.lifetime)
	}
}

func testUpdatePerMethod(t *testing.T, s *sharedTest) {
	g, ctx := s.gateway(), t.Context()
	f := s.startFollower(t, s.gateway())
	const key = "revoked:1"
	for _, tt := range []struct {
		method string
		change func() error
		want   map[string]string
	}{
		{"Put", func() error { return g.Put(ctx, key, []byte("put"), s.lifetime*9) }, map[string]string{key: "put"}},
		{"Swap", func() error { return g.Swap(ctx, key, []byte("put"), []byte("sw"), s.lifetime*9) }, map[string]string{key: "sw"}},
		{"Append", func() error { return g.Append(ctx, key, []byte("ap"), 9, s.lifetime*9) }, map[string]string{key: "swap"}},
		{"Take", func() error { _, err := g.Take(ctx, key); return err }, map[string]string{}},
		{"Add", func() error { return g.Add(ctx, key, []byte("added"), s.lifetime*9) }, map[string]string{key: "added"}},
		{"Delete", func() error { return g.Delete(ctx, key) }, map[string]string{}},
		{"Append to absent key", func() error { return g.Append(ctx, key, []byte("ap"), 9, s.lifetime*9) }, map[string]string{key: "ap"}},
	} {
		requireNoError(t, tt.change())
		f.awaitValues(t, tt.want)
		if ttl := time.Until(f.expires[key]); len(tt.want) > 0 && (ttl > 9*s.lifetime+time.Second || ttl < 8*s.lifetime) {
			t.Errorf("after %s, the remaining lifetime is %v, want about %v", tt.method, ttl, 9*s.lifetime)
		}
	}
}

func testNoUpdateOnFailure(t *testing.T, s *sharedTest) {
	g, ctx := s.gateway(), t.Context()
	requireNoError(t, g.Put(ctx, "revoked:1", []byte("kept"), s.lifetime*4))
	f := s.startFollower(t, s.gateway())
	for _, err := range []error{
		g.Add(ctx, "revoked:1", []byte("refused"), s.lifetime),
		g.Swap(ctx, "revoked:1", []byte("other"), []byte("refused"), s.lifetime),
		g.Append(ctx, "revoked:1", []byte("refused"), 4, s.lifetime),
		g.Do(
			ctx, &store.Call{Op: store.Put, Key: "revoked:2", Value: []byte("refused"), TTL: s.lifetime},
			&store.Call{Op: store.Take, Key: "cutoff:nothing"},
		),
	} {
		if err == nil {
			t.Error("got no error, want rejection")
		}
	}
	requireNoError(t, g.Put(ctx, "revoked:3", []byte("last"), s.lifetime*4))
	f.awaitValues(t, map[string]string{"revoked:1": "kept", "revoked:3": "last"})
}

func testStepUpdates(t *testing.T, s *sharedTest) {
	g, ctx := s.gateway(), t.Context()
	requireNoError(t, g.Put(ctx, "code:1", []byte("v"), s.lifetime*4))
	requireNoError(t, g.Put(ctx, "cutoff:old", []byte("v"), s.lifetime*4))
	f := s.startFollower(t, s.gateway())
	requireNoError(t, g.Do(
		ctx, &store.Call{Op: store.Take, Key: "code:1"},
		&store.Call{Op: store.Put, Key: "revoked:1", Value: []byte("a"), TTL: s.lifetime * 4},
		&store.Call{Op: store.Get, Key: "revoked:nothing"},
		&store.Call{Op: store.Add, Key: "cutoff:new", Value: []byte("b"), TTL: s.lifetime * 4},
		&store.Call{Op: store.Delete, Key: "cutoff:old"},
		&store.Call{Op: store.Put, Key: "session:1", Value: []byte("c"), TTL: s.lifetime * 4},
	))
	f.awaitValues(t, map[string]string{"revoked:1": "a", "cutoff:new": "b"})
}

func testUpdateLatency(t *testing.T, s *sharedTest) {
	g := s.gateway()
	f := s.startFollower(t, s.gateway())
	for i := range 5 {
		key := fmt.Sprint("revoked:", i)
		changed := time.Now()
		requireNoError(t, g.Put(t.Context(), key, []byte("v"), s.lifetime*4))
		f.await(t, key, func() bool { return f.values[key] == "v" })
		if elapsed := time.Since(changed); elapsed > time.Second {
			t.Errorf("%s was reported after %v, want at most 1s", key, elapsed)
		}
		time.Sleep(s.lifetime / 8)
	}
}

func testHeartbeat(t *testing.T, s *sharedTest) {
	f := s.startFollower(t, s.gateway())
	for range 2 {
		start := time.Now()
		f.await(t, "heartbeat without changes", func() bool { return f.lastQueriedAt.After(start) })
		if elapsed := time.Since(start); elapsed > 3*time.Second {
			t.Errorf("heartbeat took %v, want at most 3s", elapsed)
		}
		if f.lastQueriedAt.After(time.Now()) {
			t.Errorf("QueriedAt %v is in the future", f.lastQueriedAt)
		}
	}
}

func testSubscribeCanceled(t *testing.T, s *sharedTest) {
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error)
	updates := make(chan struct{}, 100)
	go func() {
		ended <- s.gateway().Subscribe(ctx, func(store.Update) {
			select {
			case updates <- struct{}{}:
			default:
			}
		})
	}()
	<-updates
	end()
	select {
	case err := <-ended:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("Subscribe returned %v, want context.Canceled", err)
		}
	case <-time.After(3 * time.Second):
		t.Fatal("Subscribe did not return after its context was canceled")
	}
}

func testFollowersAgree(t *testing.T, s *sharedTest) {
	a, b := s.gateway(), s.gateway()
	first, second := s.startFollower(t, a), s.startFollower(t, b)
	want := s.changeConcurrently(t, a, b)
	first.awaitValues(t, want)
	second.awaitValues(t, want)
}

// changeConcurrently lets gateways change the same keys concurrently and returns the resulting entries.
func (s *sharedTest) changeConcurrently(t *testing.T, gateways ...store.SharedStore) map[string]string {
	var all sync.WaitGroup
	for n, g := range gateways {
		all.Go(func() {
			for i := range 100 {
				key := fmt.Sprint("revoked:", i%7)
				err := g.Put(t.Context(), key, fmt.Append(nil, n, ".", i), s.lifetime*9)
				if i%5 == 4 {
					err = errors.Join(err, g.Delete(t.Context(), key))
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	want := map[string]string{}
	keys, err := gateways[0].List(t.Context(), "revoked:")
	requireNoError(t, err)
	for _, key := range keys {
		value, err := gateways[0].Get(t.Context(), key)
		requireNoError(t, err)
		want[key] = string(value)
	}
	return want
}

func testLateFollower(t *testing.T, s *sharedTest) {
	a, b := s.gateway(), s.gateway()
	first := s.startFollower(t, a)
	s.changeConcurrently(t, a, b)
	late := s.startFollower(t, b)
	want := s.changeConcurrently(t, a, b)
	first.awaitValues(t, want)
	late.awaitValues(t, want)
}

func testNoExpiredUpdates(t *testing.T, s *sharedTest) {
	g := s.gateway()
	requireNoError(t, g.Put(t.Context(), "revoked:short", []byte("v"), s.lifetime))
	requireNoError(t, g.Put(t.Context(), "revoked:long", []byte("v"), s.lifetime*9))
	time.Sleep(s.lifetime + s.lifetime/4)
	f := s.startFollower(t, s.gateway())
	f.await(t, "revoked:long", func() bool { return f.values["revoked:long"] == "v" })
	if expires, ok := f.expires["revoked:short"]; ok && expires.After(time.Now()) {
		t.Errorf("expired entry is reported with expiry %v", expires)
	}
}

func testLastUpdateWins(t *testing.T, s *sharedTest) {
	a, b := s.gateway(), s.gateway()
	f := s.startFollower(t, s.gateway())
	var all sync.WaitGroup
	for n, g := range []store.SharedStore{a, b} {
		all.Go(func() {
			for i := range 500 {
				if err := g.Put(t.Context(), "cutoff:user", fmt.Append(nil, n, ".", i), s.lifetime*99); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	last, err := a.Get(t.Context(), "cutoff:user")
	requireNoError(t, err)
	f.awaitValues(t, map[string]string{"cutoff:user": string(last)})
	s.waitUntilIdle()
	f.awaitValues(t, map[string]string{"cutoff:user": string(last)})
}
