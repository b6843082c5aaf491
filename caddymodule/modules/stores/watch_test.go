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

// A problem begins immediately, is logged once, and ends after a period without failures. A store that fails every other time
// has a single problem, which is logged once.
func TestStoreWatch(t *testing.T) {
	t.Parallel()
	for cause, err := range map[store.Cause]error{
		store.CauseFull:        store.ErrFull,
		store.CausePermissions: &store.Fault{Cause: store.CausePermissions, Err: errors.New("no +xadd")},
		store.CauseEviction:    &store.Fault{Cause: store.CauseEviction, Err: errors.New("allkeys-lru")},
		store.CauseFileLost:    &store.Fault{Cause: store.CauseFileLost, Err: errors.New("moved")},
		store.CauseOther:       errors.New("fails"),
	} {
		synctest.Test(t, func(t *testing.T) {
			var fails atomic.Bool
			var trials atomic.Int64
			var log bytes.Buffer
			w := newStoreMonitor("kind", func(context.Context) error {
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
			check := func() error { time.Sleep(resultLifetime); return w.check(t.Context()) }
			if err := check(); err != nil || log.Len() > 0 {
				t.Fatalf("%s: at first: %v, %s", cause, err, &log)
			}
			for i := range 20 {
				fails.Store(i%3 == 0) // two consecutive successes
				if err := check(); store.CauseOf(err) != cause || !w.causes()[cause] {
					t.Errorf("%s, trial %d: %v", cause, i, err)
				}
			}
			fails.Store(false)
			time.Sleep(recoveryPeriod + 2*troubleInterval)
			if err := check(); err != nil || w.causes()[cause] {
				t.Errorf("%s: %v persists after the recovery", cause, err)
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

type volatileStore struct{ *store.Memory }

func (volatileStore) VolatilityReason() string { return "for a test" }

// A volatile durable store is logged once: a local store before the start, so that `caddy validate` logs it too, and a remote
// store when it is first available.
func TestVolatileIsLoggedOnce(t *testing.T) {
	t.Parallel()
	memory := volatileStore{store.NewMemory(0, 0)}
	local := &Set{Store: memory, Durable: memory, monitors: map[store.Store]*HealthMonitor{memory: NewLocalMonitor("local", memory)}}
	m := new(Shared)
	err := m.Open("kind", t.Name(), func(*slog.Logger) (*Remote, error) {
		return &Remote{
			SharedStore: storetest.NewSharedMemory(SubscribedKinds()...).Gateway(), Check: func(context.Context) error { return nil },
			Close: func() error { return nil }, VolatilityReason: func(context.Context) string { return "for a test" },
		}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Cleanup() })
	shared := &Set{Store: m.replica, Durable: m.replica, sharedStores: []*pooledShared{m.pooledShared}, monitors: map[store.Store]*HealthMonitor{m.replica: m.monitor}}
	for name, set := range map[string]*Set{"local": local, "shared": shared} {
		log, w := new(bytes.Buffer), set.monitors[set.Durable]
		logger := slog.New(slog.NewTextHandler(log, nil))
		t.Cleanup(w.Stop)
		set.LogWarnings(logger, nil, true)
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
	if err := local.Start(t.Context(), slog.New(slog.DiscardHandler), issuerA, 0); err != nil || len(local.monitors[memory].warnings()) > 0 {
		t.Errorf("no longer the durable one: %v, %q", err, local.monitors[memory].warnings())
	}
}

// A check does not wait for a hung store.
func TestStoreWatchIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hangs := make(chan struct{})
		w := NewLocalMonitor("kind", nil)
		w.probe = func(context.Context) error { <-hangs; return nil }
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

const issuerA, issuerB = "https://a.example", "https://b.example"

// lateStore returns a store that was unavailable when the gateway of an issuer started.
func lateStore(t *testing.T, issuer string) (*storetest.SharedMemory, *checkedStore, *bytes.Buffer) {
	t.Helper()
	server := storetest.NewSharedMemory(SubscribedKinds()...)
	gateway, log := server.Gateway(), new(bytes.Buffer)
	s := newCheckedStore(&Remote{SharedStore: gateway, SeparateStoreHint: "an option", Check: func(ctx context.Context) error {
		_, err := gateway.List(ctx, "none:")
		return err
	}}, slog.New(slog.NewTextHandler(log, nil)))
	server.SetDown(true)
	if err := s.checkAtStart(t.Context(), issuer); !errors.Is(err, store.ErrUnavailable) {
		t.Fatal(err)
	}
	server.SetDown(false)
	return server, s, log
}

// A store that was unavailable on startup is used only after it has passed its check.
func TestStoreIsUsedOnceChecked(t *testing.T) {
	t.Parallel()
	_, s, _ := lateStore(t, issuerA)
	if _, err := s.Get(t.Context(), "k"); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("before the check: %v", err)
	}
	if err := s.recheck(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(t.Context(), "k"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("after the check: %v", err)
	}
}

// A store that is found to belong to another issuer is not used until this has been corrected. The problem is logged once.
func TestStoreOfOtherIssuerIsFoundLate(t *testing.T) {
	t.Parallel()
	server, s, log := lateStore(t, issuerA)
	if _, err := store.AssignIssuer(t.Context(), server.Gateway(), issuerB); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := s.Subscribe(t.Context(), func(store.Update) { t.Error("unexpected update") }); !errors.As(err, new(*store.IssuerMismatchError)) {
			t.Errorf("followed: %v", err)
		}
	}
	_, err := s.List(t.Context(), "k:")
	if getErr := s.Put(t.Context(), "k", nil, time.Minute); !errors.Is(err, store.ErrUnavailable) || !errors.Is(getErr, store.ErrUnavailable) {
		t.Errorf("used: %v, %v", err, getErr)
	}
	if text := log.String(); strings.Count(text, "level=ERROR") != 1 || !strings.Contains(text, issuerA) || !strings.Contains(text, issuerB) {
		t.Errorf("logged:\n%s", text)
	}
	if err := server.Gateway().Delete(t.Context(), store.IssuerKey); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.recheck(t.Context()), s.Put(t.Context(), "k", nil, time.Minute)); err != nil {
		t.Errorf("mended: %v", err)
	}
}

// A store that has lost its data and was then assigned to another issuer is not used when the subscription is restarted.
func TestStoreTakenByOtherIssuer(t *testing.T) {
	t.Parallel()
	server, s, _ := lateStore(t, issuerA)
	if err := s.recheck(t.Context()); err != nil {
		t.Fatal(err)
	}
	g := server.Gateway()
	if err := errors.Join(g.Delete(t.Context(), store.IssuerKey), claim(t, g, issuerB)); err != nil {
		t.Fatal(err)
	}
	if err := s.recheck(t.Context()); !errors.As(err, new(*store.IssuerMismatchError)) {
		t.Errorf("followed: %v", err)
	}
	if _, err := s.Get(t.Context(), "k"); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("used: %v", err)
	}
}

// A reload while the store is unavailable does not affect a store that is in use.
func TestReloadDuringStoreOutage(t *testing.T) {
	t.Parallel()
	server, s, _ := lateStore(t, issuerA)
	if err := s.recheck(t.Context()); err != nil {
		t.Fatal(err)
	}
	server.SetDown(true)
	if err := s.checkAtStart(t.Context(), issuerA); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("reload: %v", err)
	}
	server.SetDown(false)
	if err := s.Put(t.Context(), "k", nil, time.Minute); err != nil {
		t.Error(err)
	}
}

func claim(t *testing.T, s store.Store, issuer string) error {
	_, err := store.AssignIssuer(t.Context(), s, issuer)
	return err
}
