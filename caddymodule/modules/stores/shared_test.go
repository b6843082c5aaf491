package stores

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store/storetest"
)

// A reload reuses the store and its replica. They are closed when the last configuration stops.
func TestSharedStoreOutlivesReload(t *testing.T) {
	t.Parallel()
	gateway, closed := storetest.NewSharedMemory(SubscribedKinds()...).Gateway(), 0
	var modules []*Shared
	for range 2 {
		m := new(Shared)
		err := m.Open("kind", t.Name(), func(*slog.Logger) (*Remote, error) {
			return &Remote{SharedStore: gateway, Check: func(context.Context) error { return nil }, Close: func() error { closed++; return nil }}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := m.start(slog.New(slog.DiscardHandler), "https://x.example", time.Hour); err != nil {
			t.Fatal(err)
		}
		modules = append(modules, m)
	}
	if modules[0].replica != modules[1].replica {
		t.Error("two configurations have two replicas")
	}
	if err := new(Shared).Cleanup(); err != nil { // Open was never called
		t.Error(err)
	}
	for i, m := range modules {
		if closed != 0 {
			t.Errorf("closed after %d cleanups", i)
		}
		if err := m.Cleanup(); err != nil {
			t.Error(err)
		}
	}
	if closed != 1 {
		t.Errorf("closed %d times", closed)
	}
}

// A store is not used if its check fails after the start.
func TestSharedStoreIsCheckedLate(t *testing.T) {
	t.Parallel()
	unfit := errors.New("it evicts")
	g := storetest.NewSharedMemory().Gateway()
	s := newCheckedStore(&Remote{SharedStore: g, Check: func(context.Context) error { return unfit }}, slog.New(slog.DiscardHandler))
	if err := s.Subscribe(t.Context(), func(store.Update) { t.Error("unexpected update") }); !errors.Is(err, unfit) {
		t.Errorf("followed: %v", err)
	}
}

// Records are logged with the logger of the latest configuration and the attributes of the store.
func TestLatestLogger(t *testing.T) {
	t.Parallel()
	var first, second bytes.Buffer
	var latest latestLogger
	latest.Store(slog.New(slog.NewTextHandler(&first, nil)))
	logger := slog.New(&latest)
	logger.Info("one")
	latest.Store(slog.New(slog.NewTextHandler(&second, nil)).With("store", "redis"))
	logger.Info("two", "x", 1)
	logger.Debug("three")
	if strings.Count(first.String(), "\n") != 1 || !strings.Contains(second.String(), "msg=two store=redis x=1\n") || strings.Count(second.String(), "\n") != 1 {
		t.Errorf("first:\n%ssecond:\n%s", first.String(), second.String())
	}
}

// A gateway that cannot receive changes made by other gateways reports a problem but continues to call the store.
func TestListenFailureIsReported(t *testing.T) {
	t.Parallel()
	deaf := &store.Fault{Cause: store.CausePermissions, Err: errors.New("no +xread")}
	s, err := newPooledShared("kind", func(*slog.Logger) (*Remote, error) {
		return &Remote{
			SharedStore: storetest.NewSharedMemory().Gateway(), Check: func(context.Context) error { return nil },
			Close: func() error { return nil }, ProbeSubscription: func(context.Context) error { return deaf },
		}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Destruct()
	for range 5 { // more failures than the breaker accepts
		if err := s.probe(t.Context()); store.CauseOf(err) != store.CausePermissions {
			t.Errorf("tried: %v", err)
		}
	}
	if err := s.monitor.check(t.Context()); !errors.Is(err, deaf) || !s.monitor.causes()[store.CausePermissions] {
		t.Errorf("watched: %v", err)
	}
	if err := s.breaker.Put(t.Context(), "session:1", nil, time.Minute); err != nil {
		t.Errorf("the store is not queried: %v", err)
	}
}
