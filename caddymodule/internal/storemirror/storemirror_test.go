package storemirror_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store/storetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/storemirror"
)

const lifetime = time.Hour

// A site consists of a store and two gateways, of which the first has a replica.
type site struct {
	t            *testing.T
	shared       *storetest.SharedMemory
	here         *storetest.Gateway
	elsewhere    *storetest.Gateway
	replica      *storemirror.Replica
	log          strings.Builder
	stop, follow func()
}

// newSite returns a site with a replica that is subscribed to the store.
func newSite(t *testing.T, c storemirror.Config) *site {
	t.Helper()
	s := &site{t: t, shared: storetest.NewSharedMemory("revoked", "account")}
	s.here, s.elsewhere = s.shared.Gateway(), s.shared.Gateway()
	c.MirroredKinds, c.CachedKinds = []string{"revoked"}, []string{"account"}
	c.Logger = slog.New(slog.NewTextHandler(&s.log, nil))
	s.replica = storemirror.New(s.here, c)
	s.follow = func() {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); s.replica.Run(ctx) }()
		s.stop = func() { cancel(); <-done }
		synctest.Wait()
	}
	s.follow()
	return s
}

// wants checks the value that the replica returns for a key ("" if the entry does not exist) and the number of round trips.
func (s *site) wants(key, want string, trips int) {
	s.t.Helper()
	before := s.here.RoundTrips()
	value, err := s.replica.Get(s.t.Context(), key)
	if string(value) != want || errors.Is(err, store.ErrNotFound) != (want == "") {
		s.t.Errorf("%s is %q, %v; want %q", key, value, err, want)
	}
	if took := s.here.RoundTrips() - before; took != trips {
		s.t.Errorf("%s took %d round trips, want %d", key, took, trips)
	}
}

func (s *site) unavailable(key string) {
	s.t.Helper()
	if value, err := s.replica.Get(s.t.Context(), key); !errors.Is(err, store.ErrUnavailable) {
		s.t.Errorf("%s is %q, %v, want that the store is unavailable", key, value, err)
	}
}

func (s *site) put(in store.Store, key, value string) {
	s.t.Helper()
	if err := in.Put(s.t.Context(), key, []byte(value), lifetime); err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) delete(in store.Store, key string) {
	s.t.Helper()
	if err := in.Delete(s.t.Context(), key); err != nil {
		s.t.Fatal(err)
	}
}

func TestGet(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		config storemirror.Config
		test   func(*site)
	}{
		{"entries of other kinds are read from the store", storemirror.Config{}, func(s *site) {
			s.put(s.elsewhere, "code:1", "v")
			s.wants("code:1", "v", 1)
			s.wants("revokedx:1", "", 1)
		}},
		{"a mirrored kind needs no round trip", storemirror.Config{}, func(s *site) {
			s.wants("revoked:1", "", 0)
			s.put(s.elsewhere, "revoked:1", "v")
			synctest.Wait()
			s.wants("revoked:1", "v", 0)
			s.delete(s.elsewhere, "revoked:1")
			synctest.Wait()
			s.wants("revoked:1", "", 0)
		}},
		{"a mirrored entry expires", storemirror.Config{}, func(s *site) {
			s.put(s.elsewhere, "revoked:1", "v")
			time.Sleep(lifetime - time.Second)
			s.wants("revoked:1", "v", 0)
			time.Sleep(time.Second)
			s.wants("revoked:1", "", 0)
		}},
		{"earlier entries", storemirror.Config{}, func(s *site) {
			s.stop()
			s.put(s.elsewhere, "revoked:1", "v")
			s.follow()
			s.wants("revoked:1", "v", 0)
		}},
		{"a cached kind is read once", storemirror.Config{}, func(s *site) {
			s.put(s.elsewhere, "account:1", "v")
			synctest.Wait()
			s.wants("account:1", "v", 1)
			s.wants("account:1", "v", 0)
			s.wants("account:2", "", 1)
			s.wants("account:2", "", 0)
			s.put(s.elsewhere, "account:1", "w")
			s.put(s.elsewhere, "account:2", "w")
			synctest.Wait()
			s.wants("account:1", "w", 1)
			s.wants("account:2", "w", 1)
			s.wants("account:1", "w", 0)
		}},
		{"a cached entry is read again, since its expiry is not announced", storemirror.Config{}, func(s *site) {
			s.put(s.elsewhere, "account:1", "v")
			synctest.Wait()
			s.wants("account:1", "v", 1)
			time.Sleep(time.Minute)
			s.wants("account:1", "v", 1)
			time.Sleep(lifetime)
			s.wants("account:1", "", 1)
		}},
		{"few cached entries fit", storemirror.Config{MaxCacheBytes: 500}, func(s *site) {
			for _, id := range []string{"1", "2", "3"} {
				s.wants("account:"+id, "", 1)
			}
			s.wants("account:3", "", 0)
			s.wants("account:1", "", 1)
		}},
		{"entries beyond the mirror's capacity are read from the store until they expire", storemirror.Config{MaxMirrored: 2}, func(s *site) {
			for _, id := range []string{"1", "2", "3"} {
				s.put(s.elsewhere, "revoked:"+id, "v")
			}
			synctest.Wait()
			s.wants("revoked:1", "v", 0)
			s.wants("revoked:3", "v", 1)
			s.wants("revoked:4", "", 1)
			s.put(s.elsewhere, "revoked:1", "w")
			synctest.Wait()
			s.wants("revoked:1", "w", 0)
			time.Sleep(lifetime)
			s.wants("revoked:4", "", 0)
			s.put(s.elsewhere, "revoked:4", "v")
			synctest.Wait()
			s.wants("revoked:4", "v", 0)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { tt.test(newSite(t, tt.config)) })
		})
	}
}

// slowGateway is a gateway with responses to Get that can be delayed.
type slowGateway struct {
	store.SharedStore
	mu   sync.Mutex
	gate chan struct{} // nil means no delay
}

func (s *slowGateway) delayReads() (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	gate := make(chan struct{})
	s.gate = gate
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.gate = nil
		close(gate)
	}
}

func (s *slowGateway) Get(ctx context.Context, key string) ([]byte, error) {
	value, err := s.SharedStore.Get(ctx, key)
	s.mu.Lock()
	gate := s.gate
	s.mu.Unlock()
	if gate != nil {
		<-gate
	}
	return value, err
}

// slowSite returns a site with replica reads that can be delayed.
func slowSite(t *testing.T) (*site, *slowGateway) {
	s := newSite(t, storemirror.Config{})
	s.stop()
	slow := &slowGateway{SharedStore: s.here}
	s.replica = storemirror.New(slow, storemirror.Config{MirroredKinds: []string{"revoked"}, CachedKinds: []string{"account"}, Logger: slog.New(slog.DiscardHandler)})
	s.follow()
	return s, slow
}

// A value that was read before a change is not cached, whether this gateway or another made the change, or the subscription was
// interrupted.
func TestReadBeforeChangeIsNotCached(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		change func(*site)
		trips  int // number of round trips of the next Get
	}{
		{"no change", func(*site) {}, 0},
		{"elsewhere", func(s *site) { s.put(s.elsewhere, "account:1", "new") }, 1},
		{"here", func(s *site) { s.put(s.replica, "account:1", "new") }, 1},
		{"of another entry", func(s *site) { s.put(s.elsewhere, "account:2", "new") }, 0},
		{"all anew", func(s *site) { s.stop(); s.follow() }, 1},
		{"elsewhere, with a concurrent read", func(s *site) {
			time.Sleep(2 * time.Second)
			go func() { _, _ = s.replica.Get(s.t.Context(), "account:1") }()
			synctest.Wait()
			s.put(s.elsewhere, "account:1", "new")
		}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s, slow := slowSite(t)
				s.put(s.elsewhere, "account:1", "old")
				synctest.Wait()
				release := slow.delayReads()
				read := make(chan string)
				go func() {
					value, _ := s.replica.Get(t.Context(), "account:1")
					read <- string(value)
				}()
				synctest.Wait()
				tt.change(s)
				synctest.Wait()
				release()
				if value := <-read; value != "old" {
					t.Errorf("read %q before the change", value)
				}
				want, err := s.elsewhere.Get(t.Context(), "account:1")
				if err != nil {
					t.Fatal(err)
				}
				s.wants("account:1", string(want), tt.trips)
			})
		})
	}
}

// If a read takes too long, there is no cached value that could be used during an outage.
func TestSlowReadKeepsNoStaleValue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, slow := slowSite(t)
		s.wants("account:1", "", 1)
		time.Sleep(time.Minute) // the cached value expires
		s.here.SetDown(true)
		s.wants("account:1", "", 1)
		defer time.AfterFunc(6*time.Second, slow.delayReads()).Stop()
		s.unavailable("account:1")
	})
}

// Concurrent reads of an entry share one result unless it is too old or the entry was changed. If one caller cancels, the
// others are not affected.
func TestConcurrentReadsShareResult(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, slow := slowSite(t)
		s.stop()
		time.Sleep(time.Minute) // the replica is no longer current
		before := s.here.RoundTrips()
		release := slow.delayReads()
		var all sync.WaitGroup
		ask := func(ctx context.Context, want error) {
			all.Go(func() {
				if _, err := s.replica.Get(ctx, "revoked:1"); !errors.Is(err, want) {
					t.Errorf("answer %v, want %v", err, want)
				}
			})
			synctest.Wait()
		}
		gaveUp, giveUp := context.WithCancel(t.Context())
		ask(gaveUp, store.ErrNotFound) // the caller that executes the Get waits for the result
		for range 50 {
			ask(t.Context(), store.ErrNotFound)
		}
		ask(gaveUp, context.Canceled)
		giveUp()
		synctest.Wait()
		if took := s.here.RoundTrips() - before; took != 1 {
			t.Errorf("%d round trips at once", took)
		}
		time.Sleep(2 * time.Second)
		ask(t.Context(), store.ErrNotFound)
		if took := s.here.RoundTrips() - before; took != 2 {
			t.Errorf("%d round trips, one of them late", took)
		}
		release()
		all.Wait()
	})
}

// BenchmarkGetNothing looks up a token that is not revoked while the store contains 1000 revoked tokens.
func BenchmarkGetNothing(b *testing.B) {
	ctx, stop := context.WithCancel(b.Context())
	defer stop()
	memory, shared := store.NewMemory(0, 0), storetest.NewSharedMemory("revoked").Gateway()
	r := storemirror.New(shared, storemirror.Config{MirroredKinds: []string{"revoked", "cutoff"}, CachedKinds: []string{"account"}, Logger: slog.New(slog.DiscardHandler)})
	for i := range 1000 {
		for _, s := range []store.Store{memory, shared} {
			if err := s.Put(ctx, fmt.Sprintf("revoked:%032d", i), []byte("revoked"), time.Hour); err != nil {
				b.Fatal(err)
			}
		}
	}
	go r.Run(ctx)
	for !r.IsCurrent() {
		runtime.Gosched()
	}
	for _, tt := range []struct {
		name  string
		store store.Store
	}{{"memory", memory}, {"replica", r}} {
		b.Run(tt.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := tt.store.Get(ctx, "revoked:00000000000000000000000000002000"); err == nil {
					b.Fatal("found")
				}
			}
		})
		b.Run(tt.name+"/parallel", func(b *testing.B) {
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					_, _ = tt.store.Get(ctx, "revoked:00000000000000000000000000002000")
				}
			})
		})
	}
}
