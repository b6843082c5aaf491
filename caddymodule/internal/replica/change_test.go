package replica_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/replica"
)

// Whatever changes an entry here, this process sees it at once.
func TestOwnChangesAreSeen(t *testing.T) {
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
					s := newSite(t, replica.Config{})
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

// A change that failed keeps nobody from reading what there was before.
func TestFailedChange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, replica.Config{})
		s.put(s.elsewhere, "revoked:1", "old")
		synctest.Wait()
		s.here.SetDown(true)
		if err := s.replica.Delete(t.Context(), "revoked:1"); !errors.Is(err, store.ErrUnavailable) {
			t.Error(err)
		}
		s.wants("revoked:1", "old", 0)
	})
}

// scripted is a store that tells its follower what a test says.
type scripted struct {
	store.Shared
	told chan store.Update
}

func (s *scripted) Follow(ctx context.Context, tell func(store.Update)) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case u := <-s.told:
			tell(u)
		}
	}
}

// A change made here is asked for until the store was asked for changes after it, whatever it
// tells before: that may be older.
func TestOldNewsOfOwnChange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, replica.Config{})
		s.stop()
		script := &scripted{s.here, make(chan store.Update)}
		s.replica = replica.New(script, replica.Config{Mirrored: []string{"revoked"}})
		s.follow()
		tell := func(heard time.Time, whole bool, changes ...store.Change) {
			script.told <- store.Update{Whole: whole, Changes: changes, Heard: heard}
			synctest.Wait()
		}
		tell(time.Now(), true)
		asked := time.Now()
		time.Sleep(time.Second)
		s.put(s.replica, "revoked:1", "new")
		s.wants("revoked:1", "new", 1)
		time.Sleep(time.Second)
		tell(asked, false, store.Change{Key: "revoked:1"}) // it was deleted before
		s.wants("revoked:1", "new", 1)
		tell(asked, true)
		s.wants("revoked:1", "new", 1)
		tell(time.Now(), false, store.Change{Key: "revoked:1", Value: []byte("new"), Expires: time.Now().Add(lifetime)})
		s.wants("revoked:1", "new", 0)
	})
}

// Many changes while the store tells of none take no more memory than a few.
func TestManyOwnChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, replica.Config{})
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
