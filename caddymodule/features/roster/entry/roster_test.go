package entry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

var empty = Entry{Config: []byte(`{}`)}

func mustChange(t *testing.T, r *Roster, kind Kind, name string, alter Alteration) {
	t.Helper()
	if err := r.Change(t.Context(), kind, name, alter, nil); err != nil {
		t.Fatal(err)
	}
}

// namesIn returns the names of users in a snapshot, sorted.
func namesIn(r *Snapshot) (names []string) {
	for name := range r.All(Users) {
		names = append(names, name)
	}
	return slices.Sorted(slices.Values(names))
}

func TestChange(t *testing.T) {
	r := New(store.NewMemory(10, 0), new(LoadedEntries))
	if r.Snapshot() != nil {
		t.Error("a record before it was read")
	}
	mustChange(t, r, Users, "a", Add(empty))
	failure := errors.New("no")
	refuse := func(_, _ *Entry) error { return failure }
	for _, tt := range []struct {
		name, entry string
		kind        Kind
		alter       Alteration
		check       func(before, after *Entry) error
		want        error
	}{
		{"one that is there", "a", Users, Add(empty), nil, ErrExists},
		{"removal of none", "a", Clients, Remove(), nil, ErrNotFound},
		{"an edit of none", "b", Users, Replace(nil), nil, ErrNotFound},
		{"a failing edit", "a", Users, Replace(func(e Entry) (Entry, error) { return e, failure }), nil, failure},
		{"an addition that is refused", "b", Users, Add(empty), refuse, failure},
		{"a removal that is refused", "a", Users, Remove(), refuse, failure},
	} {
		if err := r.Change(t.Context(), tt.kind, tt.entry, tt.alter, tt.check); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v", tt.name, err)
		}
		fresh := New(r.store, new(LoadedEntries))
		for _, of := range []*Roster{r, fresh} {
			if _, err := of.Read(t.Context()); err != nil || !slices.Equal(namesIn(of.Snapshot()), []string{"a"}) || of.Snapshot().Len(Users) != 1 || of.Snapshot().Len(Clients) != 0 {
				t.Errorf("%s changed something: %v, %v", tt.name, err, namesIn(of.Snapshot()))
			}
		}
	}
	mustChange(t, r, Users, "a", Remove())
	if r.Snapshot().Len(Users) != 0 || r.Snapshot().Get(Users, "a") != nil {
		t.Errorf("after the removal: %+v", r.Snapshot().Get(Users, "a"))
	}
}

// If several gateways make changes concurrently, no change is lost.
func TestChangesAtOnce(t *testing.T) {
	shared := store.NewMemory(20, 0)
	var changes sync.WaitGroup
	for _, name := range []string{"a", "b", "c", "d"} {
		changes.Go(func() {
			if err := New(shared, new(LoadedEntries)).Change(t.Context(), Users, name, Add(empty), nil); err != nil {
				t.Error(err)
			}
		})
	}
	changes.Wait()
	r := New(shared, new(LoadedEntries))
	if changed, err := r.Read(t.Context()); !changed || err != nil || r.Snapshot().Len(Users) != 4 {
		t.Errorf("%v %v: %v", changed, err, namesIn(r.Snapshot()))
	}
}

// A change that another gateway has just made is visible. An entry can be added only once, and all gateways read both changes.
func TestConcurrentChangeIsVisible(t *testing.T) {
	memory := store.NewMemory(20, 0)
	shared := &countingStore{Store: memory}
	here, follower := New(shared, new(LoadedEntries)), New(memory, new(LoadedEntries))
	mustChange(t, here, Users, "first", Add(empty))
	if _, err := follower.Read(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := func(name string) {
		shared.fail = func(calls []*store.Call) error {
			if slices.ContainsFunc(calls, (*store.Call).StoresValue) {
				shared.fail = nil
				mustChange(t, New(memory, new(LoadedEntries)), Users, name, Add(empty))
			}
			return nil
		}
	}
	before("a")
	if err := here.Change(t.Context(), Users, "a", Add(empty), nil); !errors.Is(err, ErrExists) {
		t.Errorf("an entry that was just added: %v", err)
	}
	before("b")
	mustChange(t, here, Users, "c", Add(empty))
	if _, err := follower.Read(t.Context()); err != nil || !slices.Equal(namesIn(follower.Snapshot()), []string{"a", "b", "c", "first"}) {
		t.Errorf("%v, %v", namesIn(follower.Snapshot()), err)
	}
}

// A gateway that follows changes has the same entries as a gateway that reads all of them. This also holds if it is a few
// changes behind, has missed more changes than the store retains, or the store was restored from a backup.
func TestFollowing(t *testing.T) {
	shared := &countingStore{Store: store.NewMemory(3000, 0)}
	here, there := New(shared, new(LoadedEntries)), New(shared, new(LoadedEntries))
	agree := func(name string) {
		t.Helper()
		fresh := New(shared, new(LoadedEntries))
		for _, r := range []*Roster{there, fresh} {
			if _, err := r.Read(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if got, want := namesIn(there.Snapshot()), namesIn(fresh.Snapshot()); !slices.Equal(got, want) || there.Snapshot().Len(Users) != len(want) {
			t.Errorf("%s: %d users, want %d", name, len(got), len(want))
		}
		for name, e := range fresh.Snapshot().All(Users) {
			if !e.equal(*there.Snapshot().Get(Users, name)) {
				t.Errorf("%s: another entry of %s", name, name)
			}
		}
	}
	agree("empty")
	for i := range 5 {
		mustChange(t, here, Users, fmt.Sprint("first-", i), Add(empty))
	}
	agree("the first entries")
	backup := maps.Collect(entriesOf(t, shared))
	mustChange(t, here, Users, "first-1", Remove())
	mustChange(t, here, Users, "first-2", Replace(func(Entry) (Entry, error) { return Entry{Config: []byte(`{"x":1}`)}, nil }))
	mustChange(t, here, Users, "second", Add(empty))
	lists := shared.lists.Load()
	if _, err := there.Read(t.Context()); err != nil || shared.lists.Load() != lists {
		t.Errorf("read all entries for three changes: %v", err)
	}
	agree("a removal, an edit and an addition")
	for i := range maxStoredChanges + 1 {
		mustChange(t, here, Users, fmt.Sprint("more-", i), Add(empty))
	}
	agree("more changes than are kept")
	restored := store.NewMemory(3000, 0)
	for key, value := range backup {
		if err := restored.Put(t.Context(), key, value, store.Forever); err != nil {
			t.Fatal(err)
		}
	}
	shared.Store = restored
	other := New(shared, new(LoadedEntries))
	for i := range int(there.loaded.latest.Load().head.Number) { // more changes than the gateway has read
		mustChange(t, other, Users, fmt.Sprint("later-", i%900, "-", i/900), Add(empty))
	}
	agree("other changes after a restore")
}

func entriesOf(t *testing.T, s *countingStore) func(yield func(string, []byte) bool) {
	return func(yield func(string, []byte) bool) {
		err := s.Store.(*store.Memory).Entries(t.Context(), func(key string, value []byte, _ time.Duration) error { yield(key, value); return nil })
		if err != nil {
			t.Fatal(err)
		}
	}
}

// Another gateway reads a change within the polling interval. During an outage, it retains its entries.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := &countingStore{Store: store.NewMemory(20, 0)}
		here, there := New(shared, new(LoadedEntries)), New(shared, new(LoadedEntries))
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		if _, err := there.Read(ctx); err != nil {
			t.Fatal(err)
		}
		heard := 0
		go there.Watch(ctx, func() { heard++ }, slog.New(slog.DiscardHandler))
		for i, name := range []string{"a", "b"} {
			mustChange(t, here, Users, name, Add(empty))
			time.Sleep(pollInterval + time.Millisecond)
			if synctest.Wait(); heard != i+1 || there.Snapshot().Len(Users) != i+1 {
				t.Errorf("%s: heard %d times, %v", name, heard, namesIn(there.Snapshot()))
			}
		}
		shared.unavailable.Store(true)
		time.Sleep(10 * pollInterval)
		if synctest.Wait(); heard != 2 || there.Snapshot().Len(Users) != 2 {
			t.Errorf("after an outage: heard %d times, %v", heard, namesIn(there.Snapshot()))
		}
	})
}

// The generation of an entry is higher than those of all previous entries with its name, even if clocks or the store were set
// back. An edit does not change the generation.
func TestGenerations(t *testing.T) {
	ahead, err := store.ToJSON(head{Number: 1, ID: "x", LatestGeneration: oauth2.Generation(time.Now().Add(time.Hour).UnixNano())})
	if err != nil {
		t.Fatal(err)
	}
	s := store.NewMemory(20, 0)
	if err := s.Put(t.Context(), headKey, ahead, store.Forever); err != nil {
		t.Fatal(err)
	}
	r, latest := New(s, new(LoadedEntries)), oauth2.Generation(time.Now().Add(time.Hour-time.Minute).UnixNano())
	for i := range 3 {
		if i == 2 {
			latest, r = oauth2.Generation(time.Now().Add(-time.Second).UnixNano()), New(store.NewMemory(20, 0), new(LoadedEntries))
		}
		mustChange(t, r, Users, "a", Add(empty))
		added := r.Snapshot().Get(Users, "a").Generation
		mustChange(t, r, Users, "a", Replace(func(e Entry) (Entry, error) { return e, nil }))
		if generation := r.Snapshot().Get(Users, "a").Generation; generation != added || added <= latest {
			t.Errorf("generation %d after %d, stored as %d", added, latest, generation)
		}
		mustChange(t, r, Users, "a", Remove())
		latest = added
	}
}

// The limit applies to each kind of entry. Removing an entry frees capacity.
func TestFullRoster(t *testing.T) {
	r := New(store.NewMemory(MaxEntries+2000, 0), new(LoadedEntries))
	mustChange(t, r, Users, "first", Add(empty))
	read := *r.loaded.latest.Load()
	many := make(map[entryID]*Entry, MaxEntries)
	for i := range MaxEntries - 1 {
		many[entryID{Users, fmt.Sprint(i)}] = &empty
	}
	read.snapshot = read.snapshot.withEntries(many)
	r.loaded.latest.Store(&read)
	if err := r.Change(t.Context(), Users, "x", Add(empty), nil); !errors.Is(err, ErrFull) {
		t.Errorf("a user too many: %v", err)
	}
	mustChange(t, r, Clients, "x", Add(empty))
	mustChange(t, r, Users, "first", Replace(func(e Entry) (Entry, error) { return e, nil }))
	mustChange(t, r, Users, "first", Remove())
	mustChange(t, r, Users, "x", Add(empty))
}

// countingStore counts the calls to List and can be made to fail.
type countingStore struct {
	store.Store
	lists       atomic.Int64
	unavailable atomic.Bool
	fail        func(calls []*store.Call) error
}

func (s *countingStore) List(ctx context.Context, prefix string) ([]string, error) {
	s.lists.Add(1)
	return s.Store.List(ctx, prefix)
}

func (s *countingStore) Do(ctx context.Context, calls ...*store.Call) error {
	if s.unavailable.Load() {
		return store.ErrUnavailable
	}
	if s.fail != nil {
		if err := s.fail(calls); err != nil {
			return err
		}
	}
	return s.Store.Do(ctx, calls...)
}

// Unreadable values are reported, and loaded entries stay active. A reset repairs the store and backs up unreadable values.
func TestUnreadable(t *testing.T) {
	const unreadable = `{"v":99}`
	entry := entryID{Users, "a"}
	for name, tt := range map[string]struct {
		damage      func(s store.Store) error
		retainedKey string // key under which the unreadable value is stored
	}{
		"the head": {func(s store.Store) error { return s.Put(t.Context(), headKey, []byte(unreadable), store.Forever) }, unreadableKey},
		"an entry": {func(s store.Store) error {
			return errors.Join(s.Put(t.Context(), entry.storeKey(), []byte(unreadable), store.Forever),
				s.Put(t.Context(), headKey, []byte(`{"v":1,"number":7,"id":"x"}`), store.Forever))
		}, unreadablePrefix + strings.TrimPrefix(entry.storeKey(), entryKind+":")},
		"an entry, and what changed": {func(s store.Store) error {
			return errors.Join(s.Put(t.Context(), entry.storeKey(), []byte(unreadable), store.Forever), s.Put(t.Context(), changeKey(3), []byte(unreadable), store.Forever),
				s.Put(t.Context(), headKey, []byte(`{"v":1,"number":3,"id":"x"}`), store.Forever))
		}, unreadablePrefix + strings.TrimPrefix(entry.storeKey(), entryKind+":")},
	} {
		shared := store.NewMemory(20, 0)
		here, there := New(shared, new(LoadedEntries)), New(shared, new(LoadedEntries))
		mustChange(t, here, Users, "a", Add(empty))
		if _, err := there.Read(t.Context()); err != nil || there.ReadError() != nil {
			t.Fatal(err, there.ReadError())
		}
		if err := tt.damage(shared); err != nil {
			t.Fatal(err)
		}
		if changed, err := there.Read(t.Context()); changed || err == nil || there.ReadError() == nil || there.Snapshot().Len(Users) != 1 {
			t.Errorf("%s: %v %v: %v, %v", name, changed, err, there.ReadError(), namesIn(there.Snapshot()))
		}
		if err := there.Change(t.Context(), Users, "b", Add(empty), nil); err == nil {
			t.Errorf("%s: a change", name)
		}
		if err := there.Reset(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		fresh := New(shared, new(LoadedEntries))
		for _, r := range []*Roster{there, fresh} {
			if _, err := r.Read(t.Context()); err != nil || r.ReadError() != nil || r.Snapshot().Len(Users) != 1 {
				t.Errorf("%s: after the reset: %v: %v, %v", name, err, r.ReadError(), namesIn(r.Snapshot()))
			}
		}
		if value, err := shared.Get(t.Context(), tt.retainedKey); string(value) != unreadable || err != nil {
			t.Errorf("%s: stored value %s, %v", name, value, err)
		}
		if err := there.Reset(t.Context()); !errors.Is(err, ErrReadable) {
			t.Errorf("%s: another reset: %v", name, err)
		}
		mustChange(t, there, Users, "b", Add(empty))
	}
}

// If a change is unreadable, all entries are read.
func TestUnreadableChange(t *testing.T) {
	shared := store.NewMemory(20, 0)
	here, there := New(shared, new(LoadedEntries)), New(shared, new(LoadedEntries))
	mustChange(t, here, Users, "a", Add(empty))
	if _, err := there.Read(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustChange(t, here, Users, "a", Remove())
	if err := shared.Put(t.Context(), changeKey(here.loaded.latest.Load().head.Number), []byte(`{"v":99}`), store.Forever); err != nil {
		t.Fatal(err)
	}
	if changed, err := there.Read(t.Context()); !changed || err != nil || there.Snapshot().Len(Users) != 0 {
		t.Errorf("%t, %v, %v", changed, err, namesIn(there.Snapshot()))
	}
}

// If the head is lost, no entry is lost, neither at running gateways nor at new ones. Changes are still possible.
func TestLostHead(t *testing.T) {
	shared := store.NewMemory(20, 0)
	running := New(shared, new(LoadedEntries))
	mustChange(t, running, Users, "a", Add(empty))
	if err := shared.Delete(t.Context(), headKey); err != nil {
		t.Fatal(err)
	}
	started := New(shared, new(LoadedEntries))
	for _, r := range []*Roster{running, started} {
		if _, err := r.Read(t.Context()); err != nil || !slices.Equal(namesIn(r.Snapshot()), []string{"a"}) {
			t.Errorf("%v, %v", err, namesIn(r.Snapshot()))
		}
	}
	mustChange(t, started, Users, "b", Add(empty))
	if _, err := running.Read(t.Context()); err != nil || !slices.Equal(namesIn(running.Snapshot()), []string{"a", "b"}) {
		t.Errorf("after a change: %v, %v", err, namesIn(running.Snapshot()))
	}
}
