package storemirror_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store/storetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/storemirror"
)

// A change made by this process is visible in its replica immediately, regardless of the method used.
func TestLocalChangesAreVisible(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	for _, tt := range []struct {
		name   string
		change func(store.Store, string) error
		want   string
	}{
		{"put", func(s store.Store, key string) error { return s.Put(ctx, key, []byte("new"), lifetime) }, "new"},
		{"swap", func(s store.Store, key string) error { return s.Swap(ctx, key, []byte("old"), []byte("new"), lifetime) }, "new"},
		{"append", func(s store.Store, key string) error { return s.Append(ctx, key, []byte("er"), 9, lifetime) }, "older"},
		{"take", func(s store.Store, key string) error { _, err := s.Take(ctx, key); return err }, ""},
		{"delete", func(s store.Store, key string) error { return s.Delete(ctx, key) }, ""},
		{"add", func(s store.Store, key string) error { return s.Add(ctx, key+".", []byte("new"), lifetime) }, "new"},
		{"step", func(s store.Store, key string) error {
			return s.Do(ctx, &store.Call{Op: store.Put, Key: key, Value: []byte("new"), TTL: lifetime}, &store.Call{Op: store.Get, Key: "other:1"})
		}, "new"},
	} {
		for _, key := range []string{"revoked:1", "account:1"} {
			t.Run(tt.name+" "+key, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					s := newSite(t, storemirror.Config{})
					s.put(s.elsewhere, key, "old")
					synctest.Wait()
					s.wants(key, "old", s.here.RoundTrips()+btoi(key == "account:1"))
					changed := key
					if tt.name == "add" {
						changed += "."
					}
					s.wants(changed, map[bool]string{true: "", false: "old"}[tt.name == "add"], btoi(changed == "account:1."))
					if err := tt.change(s.replica, key); err != nil {
						t.Fatal(err)
					}
					s.wants(changed, tt.want, 1)
					time.Sleep(2 * time.Second)
					s.wants(changed, tt.want, btoi(key == "account:1"))
					s.wants(changed, tt.want, 0)
				})
			})
		}
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// After a failed change, the previous value can still be read.
func TestFailedChange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, storemirror.Config{})
		s.put(s.elsewhere, "revoked:1", "old")
		synctest.Wait()
		s.here.SetDown(true)
		if err := s.replica.Delete(t.Context(), "revoked:1"); !errors.Is(err, store.ErrUnavailable) {
			t.Error(err)
		}
		s.wants("revoked:1", "old", 0)
	})
}

// scriptedStore is a store that sends the updates of a test to its subscriber.
type scriptedStore struct {
	store.SharedStore
	updates chan store.Update
}

func (s *scriptedStore) Subscribe(ctx context.Context, tell func(store.Update)) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case u := <-s.updates:
			tell(u)
		}
	}
}

// After a local change, the entry is read from the store until the store reports changes up to a time after the local change.
// Earlier updates may predate the local change.
func TestStaleUpdateOfLocalChange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, storemirror.Config{})
		s.stop()
		script := &scriptedStore{s.here, make(chan store.Update)}
		s.replica = storemirror.New(script, storemirror.Config{MirroredKinds: []string{"revoked"}})
		s.follow()
		tell := func(queriedAt time.Time, complete bool, changes ...store.Change) {
			script.updates <- store.Update{IsComplete: complete, Changes: changes, QueriedAt: queriedAt}
			synctest.Wait()
		}
		tell(time.Now(), true)
		earlier := time.Now()
		time.Sleep(time.Second)
		s.put(s.replica, "revoked:1", "new")
		s.wants("revoked:1", "new", 1)
		time.Sleep(time.Second)
		tell(earlier, false, store.Change{Key: "revoked:1"}) // the entry was deleted before the local change
		s.wants("revoked:1", "new", 1)
		tell(earlier, true)
		s.wants("revoked:1", "new", 1)
		tell(time.Now(), false, store.Change{Key: "revoked:1", Value: []byte("new"), ExpiresAt: time.Now().Add(lifetime)})
		s.wants("revoked:1", "new", 0)
	})
}

// Many local changes before an update from the store need no more memory than a few.
func TestManyLocalChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, storemirror.Config{})
		s.stop()
		for i := range 10_002 {
			s.put(s.replica, fmt.Sprint("revoked:", i), "v")
		}
		s.wants("revoked:1", "v", 1)
		s.wants("revoked:10001", "v", 1)
		s.wants("revoked:x", "", 1)
		s.follow()
		time.Sleep(2 * time.Second)
		s.wants("revoked:1", "v", 0)
		s.wants("revoked:x", "", 0)
	})
}

// A replica that has received no message within the maximum lag reads from the store and returns an error if that fails.
func TestLag(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, storemirror.Config{})
		s.put(s.elsewhere, "revoked:1", "v")
		s.put(s.elsewhere, "account:1", "v")
		synctest.Wait()
		s.wants("account:1", "v", 1)
		s.here.SetDown(true)
		s.put(s.elsewhere, "revoked:2", "v")
		time.Sleep(4 * time.Second)
		s.wants("revoked:1", "v", 0)
		s.wants("account:1", "v", 0)
		s.wants("revoked:2", "", 0) // within the maximum lag
		if !s.replica.IsCurrent() || s.replica.Lag() < 4*time.Second {
			t.Errorf("lag %v within the maximum", s.replica.Lag())
		}
		time.Sleep(2 * time.Second)
		for _, key := range []string{"revoked:1", "revoked:2", "account:1", "code:1"} {
			s.unavailable(key)
		}
		if s.replica.IsCurrent() || s.replica.Lag() < 6*time.Second {
			t.Errorf("lag %v over the maximum", s.replica.Lag())
		}
		s.stop() // the subscription ends
		s.here.SetDown(false)
		s.wants("revoked:2", "v", 1)
		s.wants("revoked:3", "", 1)
		s.wants("revoked:3", "", 1)
		s.follow()
		s.wants("revoked:2", "v", 0)
		s.wants("account:1", "v", 1) // a change may have been missed
		if lag := s.replica.Lag(); lag > time.Second {
			t.Errorf("lag %v when back", lag)
		}
	})
}

func TestUnlimitedLag(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, storemirror.Config{})
		s.replica.SetMaxLag(storemirror.Unlimited)
		s.put(s.elsewhere, "revoked:1", "v")
		s.put(s.elsewhere, "account:1", "v")
		synctest.Wait()
		s.wants("account:1", "v", 1)
		s.here.SetDown(true)
		time.Sleep(lifetime / 2)
		s.wants("revoked:1", "v", 0)
		s.wants("revoked:2", "", 0)
		s.wants("account:1", "v", 1)
		s.wants("account:1", "v", 1)
		s.unavailable("account:2")
		s.unavailable("code:1")
	})
}

// A replica that has never received a message from the store reads every entry from the store.
func TestReplicaBeforeFirstUpdate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, lag := range []time.Duration{storemirror.Unlimited, time.Hour} {
			s := newSite(t, storemirror.Config{})
			s.stop()
			s.replica = storemirror.New(s.here, storemirror.Config{MirroredKinds: []string{"revoked"}, CachedKinds: []string{"account"}})
			s.replica.SetMaxLag(lag)
			s.wants("revoked:1", "", 1)
			s.wants("account:1", "", 1)
			s.wants("account:1", "", 1)
			s.here.SetDown(true)
			s.unavailable("revoked:1")
			s.unavailable("account:1")
		}
	})
}

// unfollowableStore is a store that responds but cannot be subscribed to for a while.
type unfollowableStore struct {
	store.SharedStore
	err   error
	until time.Time
}

func (d *unfollowableStore) Subscribe(ctx context.Context, tell func(store.Update)) error {
	if time.Now().Before(d.until) {
		return d.err
	}
	tell(store.Update{IsComplete: true, QueriedAt: time.Now()})
	<-ctx.Done()
	return ctx.Err()
}

// The start and end of failures of the subscription are logged once each, except during an outage, which the breaker logs.
func TestFollowFailureIsLoggedOnce(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]int{store.ErrUnavailable: 0, errors.New("no change notifications"): 2} {
		synctest.Test(t, func(t *testing.T) {
			var log bytes.Buffer
			r := storemirror.New(&unfollowableStore{storetest.NewSharedMemory().Gateway(), err, time.Now().Add(time.Minute)}, storemirror.Config{
				Logger: slog.New(slog.NewTextHandler(&log, nil)),
			})
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			r.Run(ctx)
			if lines := strings.Count(log.String(), "\n"); lines != want || want > 0 && !strings.Contains(log.String(), "receiving store changes again\" after=1m") {
				t.Errorf("%v: %d lines:\n%s", err, lines, &log)
			}
		})
	}
}

// Notify is called with each update after the replica has applied the update.
func TestTell(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var keys []string
		var s *site
		s = newSite(t, storemirror.Config{Notify: func(u store.Update) {
			for _, c := range u.Changes {
				keys = append(keys, c.Key)
				s.wants(c.Key, string(c.Value), 0)
			}
		}})
		s.put(s.elsewhere, "revoked:1", "v")
		synctest.Wait()
		s.stop()
		s.follow()
		if got := strings.Join(keys, " "); got != "revoked:1 revoked:1" {
			t.Errorf("changed keys %q", got)
		}
	})
}

// Within the maximum lag, the replica never contradicts the store. The value of an entry is one that it had since the last
// message from the store or since the last change by this process.
func TestReplicaFollowsAnyHistory(t *testing.T) {
	t.Parallel()
	for seed := range uint64(60) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { playHistory(t, rand.New(rand.NewPCG(seed, 0))) })
		})
	}
}

func playHistory(t *testing.T, random *rand.Rand) {
	s := newSite(t, storemirror.Config{MaxMirrored: 4, MaxCacheBytes: 1000})
	h := history{site: s, values: map[string][]version{}}
	down := false
	for range 400 {
		key := []string{"revoked:", "account:"}[random.IntN(2)] + fmt.Sprint(random.IntN(6))
		switch n := random.IntN(100); {
		case n < 15:
			h.change(s.elsewhere, key, random)
		case n < 30:
			h.change(s.replica, key, random)
		case n < 33:
			down = !down
			s.here.SetDown(down)
		case n < 45:
			time.Sleep(time.Duration(random.IntN(3000)) * time.Millisecond)
		case n < 50:
			synctest.Wait()
		default:
			h.check(key)
		}
	}
	s.here.SetDown(false)
	time.Sleep(5 * time.Second)
	for key := range h.values {
		h.check(key)
	}
}

// history contains the values that entries have had over time.
type history struct {
	*site
	values map[string][]version
}

type version struct {
	value   string
	from    time.Time
	isLocal bool // whether this process made the change
}

func (h *history) change(in store.Store, key string, random *rand.Rand) {
	v := version{value: fmt.Sprint(random.Uint32()), isLocal: in == store.Store(h.replica)}
	var err error
	if random.IntN(3) == 0 {
		v.value, err = "", in.Delete(h.t.Context(), key)
	} else {
		err = in.Put(h.t.Context(), key, []byte(v.value), lifetime)
	}
	if v.from = time.Now(); err == nil {
		h.values[key] = append(h.values[key], v)
	}
}

// check reads an entry. Its value may be as old as the maximum lag but not older than the last change by this process.
func (h *history) check(key string) {
	h.t.Helper()
	value, err := h.replica.Get(h.t.Context(), key)
	if errors.Is(err, store.ErrUnavailable) {
		return
	}
	versions := h.values[key]
	since := time.Now().Add(-min(h.replica.Lag(), storemirror.DefaultMaxLag))
	for _, version := range slices.Backward(versions) {
		if version.value == string(value) {
			return
		}
		if version.isLocal || version.from.Before(since) { // older values are not valid
			h.t.Fatalf("%s is %q, but has been %q for %v, with a lag of %v", key, value, version.value, time.Since(version.from), h.replica.Lag())
		}
	}
	if len(value) > 0 {
		h.t.Fatalf("%s is %q, which it never was", key, value)
	}
}
