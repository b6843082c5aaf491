package roster

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

func add(name string) func(*Record) error {
	return func(r *Record) error { return r.Add(Users, name, Entry{Config: []byte(`{}`)}) }
}

func TestChange(t *testing.T) {
	r := New(store.NewMemory(10, 0), new(Known))
	if r.Record() != nil {
		t.Error("a record before it was read")
	}
	if err := r.Change(t.Context(), add("a")); err != nil || len(r.Record().Entries[Users]) != 1 {
		t.Fatalf("%v, %+v", err, r.Record())
	}
	failure := errors.New("no")
	for _, tt := range []struct {
		name  string
		alter func(*Record) error
		want  error
	}{
		{"one that is there", add("a"), ErrExists},
		{"removal of none", func(r *Record) error { return r.Remove(Clients, "a") }, ErrUnknown},
		{"an edit of none", func(r *Record) error { return r.Replace(Users, "b", nil) }, ErrUnknown},
		{"half done", func(r *Record) error { return errors.Join(r.Remove(Users, "a"), failure) }, failure},
		{"too much", func(r *Record) error {
			return r.Add(Clients, "big", Entry{Config: slices.Concat([]byte(`"`), slices.Repeat([]byte("x"), maxSize), []byte(`"`))})
		}, errTooBig},
	} {
		if err := r.Change(t.Context(), tt.alter); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v", tt.name, err)
		}
		if changed, err := r.Read(t.Context()); changed || err != nil || len(r.Record().Entries[Users]) != 1 || len(r.Record().Entries[Clients]) != 0 {
			t.Errorf("%s changed something: %+v", tt.name, r.Record())
		}
	}
}

// Of changes at several gateways at once, none is lost.
func TestChangesAtOnce(t *testing.T) {
	shared := store.NewMemory(10, 0)
	var changes sync.WaitGroup
	for _, name := range []string{"a", "b", "c", "d"} {
		changes.Go(func() {
			if err := New(shared, new(Known)).Change(t.Context(), add(name)); err != nil {
				t.Error(err)
			}
		})
	}
	changes.Wait()
	r := New(shared, new(Known))
	if changed, err := r.Read(t.Context()); !changed || err != nil || len(r.Record().Entries[Users]) != 4 {
		t.Errorf("%v %v: %+v", changed, err, r.Record())
	}
}

// Another gateway hears of a change within the interval, and keeps what it knows through an outage.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := &brittleStore{Store: store.NewMemory(10, 0)}
		here, there := New(shared, new(Known)), New(shared, new(Known))
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		heard := 0
		go there.Watch(ctx, func() { heard++ }, slog.New(slog.DiscardHandler))
		for i, name := range []string{"a", "b"} {
			if err := here.Change(ctx, add(name)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(interval + time.Millisecond)
			if synctest.Wait(); heard != i+1 || len(there.Record().Entries[Users]) != i+1 {
				t.Errorf("%s: heard %d times, %+v", name, heard, there.Record())
			}
		}
		shared.down = true
		time.Sleep(10 * interval)
		if synctest.Wait(); heard != 2 || len(there.Record().Entries[Users]) != 2 {
			t.Errorf("after an outage: heard %d times, %+v", heard, there.Record())
		}
	})
}

// Whoever gets a name has a later generation than all who had it, even if clocks or the record went back; an edit keeps it.
func TestGenerations(t *testing.T) {
	ahead := Record{Latest: oauth2.Generation(time.Now().Add(time.Hour).UnixNano())}
	r, latest := *ahead.Clone(), ahead.Latest
	for i := range 3 {
		if i == 2 {
			latest, r = oauth2.Generation(time.Now().Add(-time.Second).UnixNano()), Record{}
		}
		if err := errors.Join(add("a")(&r), r.Replace(Users, "a", func(e Entry) (Entry, error) { return e, nil })); err != nil {
			t.Fatal(err)
		}
		added := r.Entries[Users]["a"].Generation
		if err := r.Remove(Users, "a"); err != nil || added <= latest {
			t.Errorf("%d after %d, %v", added, latest, err)
		}
		latest = added
	}
}

type brittleStore struct {
	store.Store
	down bool
}

func (s *brittleStore) Do(ctx context.Context, calls ...*store.Call) error {
	if s.down {
		return store.ErrUnavailable
	}
	return s.Store.Do(ctx, calls...)
}

// A record that cannot be read is told of, and leaves what is known in force.
func TestUnreadableRecord(t *testing.T) {
	shared := store.NewMemory(10, 0)
	here, there := New(shared, new(Known)), New(shared, new(Known))
	if err := here.Change(t.Context(), add("a")); err != nil {
		t.Fatal(err)
	}
	if _, err := there.Read(t.Context()); err != nil || there.Trouble() != nil {
		t.Fatal(err, there.Trouble())
	}
	for key, value := range map[string]string{recordKey: `{"v":99}`, versionKey: "other"} {
		if err := shared.Put(t.Context(), key, []byte(value), store.Forever); err != nil {
			t.Fatal(err)
		}
	}
	if changed, err := there.Read(t.Context()); changed || !errors.Is(err, store.ErrNewer) || !errors.Is(there.Trouble(), store.ErrNewer) || len(there.Record().Entries[Users]) != 1 {
		t.Errorf("%v %v: %v, %+v", changed, err, there.Trouble(), there.Record())
	}
	if err := there.Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	if changed, err := there.Read(t.Context()); changed || err != nil || there.Trouble() != nil || len(there.Record().Entries[Users]) != 1 {
		t.Errorf("after the reset: %v %v: %v, %+v", changed, err, there.Trouble(), there.Record())
	}
	if kept, err := shared.Get(t.Context(), unreadableKey); string(kept) != `{"v":99}` || err != nil {
		t.Errorf("kept %s, %v", kept, err)
	}
	if err := there.Reset(t.Context()); !errors.Is(err, ErrReadable) {
		t.Errorf("another reset: %v", err)
	}
}
