package replica_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/replica"
)

// slow is a gateway whose answers to Get are held back.
type slow struct {
	store.Shared
	mu   sync.Mutex
	held chan struct{} // nil: none is
}

func (s *slow) hold() (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := make(chan struct{})
	s.held = held
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.held = nil
		close(held)
	}
}

func (s *slow) Get(ctx context.Context, key string) ([]byte, error) {
	value, err := s.Shared.Get(ctx, key)
	s.mu.Lock()
	held := s.held
	s.mu.Unlock()
	if held != nil {
		<-held
	}
	return value, err
}

// slowSite is a site whose replica's reads can be held back.
func slowSite(t *testing.T) (*site, *slow) {
	s := newSite(t, replica.Config{})
	s.stop()
	slow := &slow{Shared: s.here}
	s.replica = replica.New(slow, replica.Config{Mirrored: []string{"revoked"}, Cached: []string{"account"}, Logger: slog.New(slog.DiscardHandler)})
	s.follow()
	return s, slow
}

// What was read before a change is not kept, be the change made here or elsewhere, or be it
// unknown since following began anew.
func TestAnswerBeforeChangeIsNotKept(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		change func(*site)
		trips  int // of the next Get
	}{
		{"no change", func(*site) {}, 0},
		{"elsewhere", func(s *site) { s.put(s.elsewhere, "account:1", "new") }, 1},
		{"here", func(s *site) { s.put(s.replica, "account:1", "new") }, 1},
		{"of another entry", func(s *site) { s.put(s.elsewhere, "account:2", "new") }, 0},
		{"all anew", func(s *site) { s.stop(); s.follow() }, 1},
		{"elsewhere, and somebody else had asked", func(s *site) {
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
				release := slow.hold()
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

// A question that takes too long leaves nothing to fall back on.
func TestStaleWhileAsking(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, slow := slowSite(t)
		s.wants("account:1", "", 1)
		time.Sleep(time.Minute) // until it is asked for again
		s.here.SetDown(true)
		s.wants("account:1", "", 1)
		defer time.AfterFunc(6*time.Second, slow.hold()).Stop()
		s.unavailable("account:1")
	})
}

// Who asks for the same entry at the same time shares an answer, unless it is too old or there
// was a change; and whoever gives up, does so alone.
func TestAskersShareAnAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, slow := slowSite(t)
		s.stop()
		time.Sleep(time.Minute) // stale
		before := s.here.RoundTrips()
		release := slow.hold()
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
		ask(gaveUp, store.ErrNotFound) // whoever asks the store waits for it
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
