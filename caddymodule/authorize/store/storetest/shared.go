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

// A SharedSuite contains the tests of a [store.Shared] implementation, in addition to [Suite].
type SharedSuite struct {
	// New creates an empty store. The returned function creates a further gateway's handle on the
	// store, with followers of kinds. Resources are released by t.Cleanup.
	New func(t *testing.T, kinds ...string) (gateway func() store.Shared)

	// Lifetime of entries in the tests, as in [Suite].
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

// shared is a store under test with followers of the kinds revoked and cutoff.
type shared struct {
	gateway  func() store.Shared
	lifetime time.Duration // lifetime of entries
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

// settle waits until all other goroutines of the test are blocked, or long enough for a remote
// store to notify its followers.
func (s *shared) settle() {
	if s.lifetime >= time.Minute {
		synctest.Wait()
		return
	}
	time.Sleep(s.lifetime / 4)
}

// follow starts a follower at a gateway until the test ends.
func (s *shared) follow(t *testing.T, g store.Shared) *follower {
	f := &follower{values: map[string]string{}, expires: map[string]time.Time{}}
	ctx, end := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.err = g.Subscribe(ctx, f.hear)
	}()
	t.Cleanup(func() { end(); <-done })
	f.await(t, "what there is", func() bool { return f.wholes > 0 })
	return f
}

// A follower records all reported changes.
type follower struct {
	mu      sync.Mutex
	values  map[string]string
	expires map[string]time.Time
	changes []string // key=value, or the key alone for a deletion, in order
	heard   time.Time
	wholes  int
	err     error // error of Follow, read after its end
}

func (f *follower) hear(u store.Update) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if u.IsComplete {
		f.wholes++
		clear(f.values)
	}
	for _, c := range u.Changes {
		f.expires[c.Key] = c.Expires
		if c.Value == nil {
			delete(f.values, c.Key)
			f.changes = append(f.changes, c.Key)
			continue
		}
		f.values[c.Key] = string(c.Value)
		f.changes = append(f.changes, c.Key+"="+string(c.Value))
	}
	f.heard = u.QueriedAt
}

// await waits for a condition and fails after ten seconds.
func (f *follower) await(t *testing.T, what string, condition func() bool) {
	t.Helper()
	holds := func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return condition()
	}
	for end := time.Now().Add(10 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			f.mu.Lock()
			defer f.mu.Unlock()
			t.Fatalf("not reported: %s; but %q, in the end %q", what, f.changes[max(0, len(f.changes)-20):], f.values)
		}
	}
}

// awaitValues waits until the follower has exactly these values.
func (f *follower) awaitValues(t *testing.T, want map[string]string) {
	t.Helper()
	f.await(t, fmt.Sprintf("%q", want), func() bool { return maps.Equal(f.values, want) })
}

func followsWhole(t *testing.T, s *shared) {
	g, ctx := s.gateway(), t.Context()
	must(t, g.Put(ctx, "revoked:1", []byte("v"), s.lifetime*4))
	must(t, g.Put(ctx, "cutoff:user:a", nil, s.lifetime*4))
	must(t, g.Put(ctx, "session:1", []byte("v"), s.lifetime*4))
	f := s.follow(t, s.gateway())
	f.awaitValues(t, map[string]string{"revoked:1": "v", "cutoff:user:a": ""})
	if left := time.Until(f.expires["revoked:1"]); left > 4*s.lifetime+time.Second || left < 3*s.lifetime {
		t.Errorf("it has %v left of %v", left, 4*s.lifetime)
	}
}

func followsMethods(t *testing.T, s *shared) {
	g, ctx := s.gateway(), t.Context()
	f := s.follow(t, s.gateway())
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
		{"Append of the first", func() error { return g.Append(ctx, key, []byte("ap"), 9, s.lifetime*9) }, map[string]string{key: "ap"}},
	} {
		must(t, tt.change())
		f.awaitValues(t, tt.want)
		if left := time.Until(f.expires[key]); len(tt.want) > 0 && (left > 9*s.lifetime+time.Second || left < 8*s.lifetime) {
			t.Errorf("after %s it has %v left of %v", tt.method, left, 9*s.lifetime)
		}
	}
}

func followsNoRefusal(t *testing.T, s *shared) {
	g, ctx := s.gateway(), t.Context()
	must(t, g.Put(ctx, "revoked:1", []byte("kept"), s.lifetime*4))
	f := s.follow(t, s.gateway())
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
			t.Error("not refused")
		}
	}
	must(t, g.Put(ctx, "revoked:3", []byte("last"), s.lifetime*4))
	f.awaitValues(t, map[string]string{"revoked:1": "kept", "revoked:3": "last"})
}

func followsSteps(t *testing.T, s *shared) {
	g, ctx := s.gateway(), t.Context()
	must(t, g.Put(ctx, "code:1", []byte("v"), s.lifetime*4))
	must(t, g.Put(ctx, "cutoff:old", []byte("v"), s.lifetime*4))
	f := s.follow(t, s.gateway())
	must(t, g.Do(
		ctx, &store.Call{Op: store.Take, Key: "code:1"},
		&store.Call{Op: store.Put, Key: "revoked:1", Value: []byte("a"), TTL: s.lifetime * 4},
		&store.Call{Op: store.Get, Key: "revoked:nothing"},
		&store.Call{Op: store.Add, Key: "cutoff:new", Value: []byte("b"), TTL: s.lifetime * 4},
		&store.Call{Op: store.Delete, Key: "cutoff:old"},
		&store.Call{Op: store.Put, Key: "session:1", Value: []byte("c"), TTL: s.lifetime * 4},
	))
	f.awaitValues(t, map[string]string{"revoked:1": "a", "cutoff:new": "b"})
}

func followsAtOnce(t *testing.T, s *shared) {
	g := s.gateway()
	f := s.follow(t, s.gateway())
	for i := range 5 {
		key := fmt.Sprint("revoked:", i)
		changed := time.Now()
		must(t, g.Put(t.Context(), key, []byte("v"), s.lifetime*4))
		f.await(t, key, func() bool { return f.values[key] == "v" })
		if took := time.Since(changed); took > time.Second {
			t.Errorf("%s was reported after %v", key, took)
		}
		time.Sleep(s.lifetime / 8)
	}
}

func followsNothing(t *testing.T, s *shared) {
	f := s.follow(t, s.gateway())
	for range 2 {
		asked := time.Now()
		f.await(t, "that nothing changed", func() bool { return f.heard.After(asked) })
		if took := time.Since(asked); took > 3*time.Second {
			t.Errorf("that took %v", took)
		}
		if f.heard.After(time.Now()) {
			t.Errorf("heard at %v, which is to come", f.heard)
		}
	}
}

func followsUntilEnd(t *testing.T, s *shared) {
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error)
	whole := make(chan struct{}, 100)
	go func() {
		ended <- s.gateway().Subscribe(ctx, func(store.Update) {
			select {
			case whole <- struct{}{}:
			default:
			}
		})
	}()
	<-whole
	end()
	select {
	case err := <-ended:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("it ended with %v", err)
		}
	case <-time.After(3 * time.Second):
		t.Fatal("it goes on")
	}
}

func followersAgree(t *testing.T, s *shared) {
	a, b := s.gateway(), s.gateway()
	first, second := s.follow(t, a), s.follow(t, b)
	want := s.change(t, a, b)
	first.awaitValues(t, want)
	second.awaitValues(t, want)
}

// change makes gateways change the same keys concurrently, and returns the resulting entries.
func (s *shared) change(t *testing.T, gateways ...store.Shared) map[string]string {
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
	must(t, err)
	for _, key := range keys {
		value, err := gateways[0].Get(t.Context(), key)
		must(t, err)
		want[key] = string(value)
	}
	return want
}

func lateFollower(t *testing.T, s *shared) {
	a, b := s.gateway(), s.gateway()
	first := s.follow(t, a)
	s.change(t, a, b)
	late := s.follow(t, b)
	want := s.change(t, a, b)
	first.awaitValues(t, want)
	late.awaitValues(t, want)
}

func followsNoExpired(t *testing.T, s *shared) {
	g := s.gateway()
	must(t, g.Put(t.Context(), "revoked:short", []byte("v"), s.lifetime))
	must(t, g.Put(t.Context(), "revoked:long", []byte("v"), s.lifetime*9))
	time.Sleep(s.lifetime + s.lifetime/4)
	f := s.follow(t, s.gateway())
	f.await(t, "revoked:long", func() bool { return f.values["revoked:long"] == "v" })
	if expires, ok := f.expires["revoked:short"]; ok && expires.After(time.Now()) {
		t.Errorf("what has expired is reported to expire at %v", expires)
	}
}

func followsLast(t *testing.T, s *shared) {
	a, b := s.gateway(), s.gateway()
	f := s.follow(t, s.gateway())
	var all sync.WaitGroup
	for n, g := range []store.Shared{a, b} {
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
	must(t, err)
	f.awaitValues(t, map[string]string{"cutoff:user": string(last)})
	s.settle()
	f.awaitValues(t, map[string]string{"cutoff:user": string(last)})
}
