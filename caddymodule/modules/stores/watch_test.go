package stores

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store/storetest"
)

// A problem counts at once, is logged once, and is over once the store has been well for a while: a store that fails every
// other time has one problem, and one line.
func TestStoreWatch(t *testing.T) {
	t.Parallel()
	for cause, err := range map[store.Cause]error{
		store.CauseFull:     store.ErrFull,
		store.CauseRights:   &store.Fault{Cause: store.CauseRights, Err: errors.New("no +xadd")},
		store.CauseEviction: &store.Fault{Cause: store.CauseEviction, Err: errors.New("allkeys-lru")},
		store.CauseGone:     &store.Fault{Cause: store.CauseGone, Err: errors.New("moved")},
		store.CauseFailed:   errors.New("fails"),
	} {
		synctest.Test(t, func(t *testing.T) {
			var fails atomic.Bool
			var trials atomic.Int64
			var log bytes.Buffer
			w := newStoreWatch("kind", func(context.Context) error {
				trials.Add(1)
				if fails.Load() {
					return err
				}
				return nil
			})
			w.logger.Store(slog.New(slog.NewTextHandler(&log, nil)))
			w.start()
			defer synctest.Wait()
			defer w.Stop()
			check := func() error { time.Sleep(watchFresh); return w.check(t.Context()) }
			if err := check(); err != nil || log.Len() > 0 {
				t.Fatalf("%s: at first: %v, %s", cause, err, &log)
			}
			for i := range 20 {
				fails.Store(i%3 == 0) // well twice in a row
				if err := check(); store.CauseOf(err) != cause || !w.causes()[cause] {
					t.Errorf("%s, trial %d: %v", cause, i, err)
				}
			}
			fails.Store(false)
			time.Sleep(watchSteady + 2*watchTrouble)
			if err := check(); err != nil || w.causes()[cause] {
				t.Errorf("%s: %v goes on", cause, err)
			}
			if lines := strings.Count(log.String(), "\n"); lines != 2 || !strings.Contains(log.String(), "cause="+string(cause)) {
				t.Errorf("%s: %d lines:\n%s", cause, lines, &log)
			}
			before := trials.Load()
			for range 1000 {
				if err := w.check(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if n := trials.Load() - before; n > 1 {
				t.Errorf("%d trials for 1000 questions at once", n)
			}
		})
	}
}

// volatileStore keeps nothing over a restart.
type volatileStore struct{ *store.Memory }

func (volatileStore) Volatile() string { return "for a test" }

// A durable store that keeps nothing is warned of once: one of this process before the start, so that `caddy validate` says it
// too, and one elsewhere when it can be asked.
func TestVolatileIsLoggedOnce(t *testing.T) {
	t.Parallel()
	memory := volatileStore{store.NewMemory(0, 0)}
	local := &Set{Store: memory, Durable: memory, watched: map[store.Store]*Watch{memory: NewLocalWatch("local", memory)}}
	m := new(Shared)
	err := m.Use("kind", t.Name(), func(*slog.Logger) (*Remote, error) {
		return &Remote{
			Shared: storetest.NewShared(FollowedKinds()...).Gateway(), Check: func(context.Context) error { return nil },
			Close: func() error { return nil }, Volatile: func(context.Context) string { return "for a test" },
		}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Cleanup() })
	shared := &Set{Store: m.replica, Durable: m.replica, shared: []*pooledShared{m.pooledShared}, watched: map[store.Store]*Watch{m.replica: m.watch}}
	for name, set := range map[string]*Set{"local": local, "shared": shared} {
		log, w := new(bytes.Buffer), set.watched[set.Durable]
		logger := slog.New(slog.NewTextHandler(log, nil))
		t.Cleanup(w.Stop)
		set.Warn(logger, nil, true)
		for range 2 {
			if err := set.Start(t.Context(), logger, issuerA, 0); err != nil {
				t.Fatal(err)
			}
		}
		text := log.String()
		if strings.Count(text, "\n") != 1 || !strings.Contains(text, "level=WARN") || !strings.Contains(text, "cause=volatile") || len(w.warnings()) != 1 {
			t.Errorf("%s: logged: %q, warnings %q", name, text, w.warnings())
		}
	}
	local.Durable = m.replica
	if err := local.Start(t.Context(), slog.New(slog.DiscardHandler), issuerA, 0); err != nil || len(local.watched[memory].warnings()) > 0 {
		t.Errorf("no longer the durable one: %v, %q", err, local.watched[memory].warnings())
	}
}

// A store that hangs is not waited for.
func TestStoreWatchIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hangs := make(chan struct{})
		w := NewLocalWatch("kind", nil)
		w.try = func(context.Context) error { <-hangs; return nil }
		w.logger.Store(slog.New(slog.DiscardHandler))
		for range 3 {
			began := time.Now()
			if err := w.check(t.Context()); !errors.Is(err, store.ErrUnavailable) || time.Since(began) > CheckTimeout {
				t.Errorf("after %v: %v", time.Since(began), err)
			}
		}
		close(hangs)
		synctest.Wait()
		w.Stop()
	})
}
