package caddymodule

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store/storetest"
)

const issuerX, issuerY = "https://x.example", "https://y.example"

// Another issuer does not start with a store, and the error names both and says what to do. The first one goes on.
func TestStoreOfOtherIssuer(t *testing.T) {
	t.Parallel()
	newTestServer(t)
	start := func(issuer, gateway string) (*App, error) {
		app, _, err := provisionApp(t, &App{Issuer: issuer, StoreRaw: onServer(t, gateway)})
		if err != nil {
			t.Fatal(err)
		}
		return app, app.startStores()
	}
	x, err := start(issuerX, "x")
	if err != nil {
		t.Fatal(err)
	}
	for _, gateway := range []string{"y", "x"} { // elsewhere, and after a reload
		_, err := start(issuerY, gateway)
		if err == nil || !strings.Contains(err.Error(), issuerX) || !strings.Contains(err.Error(), issuerY) || !strings.Contains(err.Error(), "of its own (an option)") {
			t.Errorf("at gateway %s: %v", gateway, err)
		}
	}
	if _, err := start(issuerX, "another"); err != nil {
		t.Errorf("another gateway of the same issuer: %v", err)
	}
	if err := x.stores.Store.Put(t.Context(), "k", nil, time.Minute); err != nil {
		t.Errorf("the first: %v", err)
	}
}

// A file is one issuer's too, and one without a mark becomes its first user's.
func TestFileOfOtherIssuer(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	file := new(FileStore)
	if err := file.Locate(path); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Cleanup() })
	for range 2 {
		if _, err := file.Claim(t.Context(), issuerX); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := file.Claim(t.Context(), issuerY); err == nil || !strings.Contains(err.Error(), issuerX) || !strings.Contains(err.Error(), path) {
		t.Errorf("another issuer: %v", err)
	}
}

// lateStore is a store that was away when a gateway of an issuer started.
func lateStore(t *testing.T, issuer string) (*storetest.Shared, *checkedStore, *bytes.Buffer) {
	t.Helper()
	server := storetest.NewShared(FollowedKinds()...)
	gateway, log := server.Gateway(), new(bytes.Buffer)
	s := newCheckedStore(&Remote{Shared: gateway, Own: "an option", Check: func(ctx context.Context) error {
		_, err := gateway.List(ctx, "none:")
		return err
	}}, slog.New(slog.NewTextHandler(log, nil)))
	server.SetDown(true)
	if err := s.begin(t.Context(), issuer); !errors.Is(err, store.ErrUnavailable) {
		t.Fatal(err)
	}
	server.SetDown(false)
	return server, s, log
}

// A store that was away at the start is used only once it has been checked.
func TestStoreIsUsedOnceChecked(t *testing.T) {
	t.Parallel()
	_, s, _ := lateStore(t, issuerX)
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

// A store that turns out to be another issuer's is not used, which is logged once; and is used when it has been mended.
func TestStoreOfOtherIssuerIsFoundLate(t *testing.T) {
	t.Parallel()
	server, s, log := lateStore(t, issuerX)
	if _, err := store.Claim(t.Context(), server.Gateway(), issuerY); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := s.Follow(t.Context(), func(store.Update) { t.Error("told something") }); !errors.As(err, new(*store.OtherIssuerError)) {
			t.Errorf("followed: %v", err)
		}
	}
	_, err := s.List(t.Context(), "k:")
	if getErr := s.Put(t.Context(), "k", nil, time.Minute); !errors.Is(err, store.ErrUnavailable) || !errors.Is(getErr, store.ErrUnavailable) {
		t.Errorf("used: %v, %v", err, getErr)
	}
	if text := log.String(); strings.Count(text, "level=ERROR") != 1 || !strings.Contains(text, issuerX) || !strings.Contains(text, issuerY) {
		t.Errorf("logged:\n%s", text)
	}
	if err := server.Gateway().Delete(t.Context(), store.IssuerKey); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.recheck(t.Context()), s.Put(t.Context(), "k", nil, time.Minute)); err != nil {
		t.Errorf("mended: %v", err)
	}
}

// A store that lost its data, and that another issuer took since, is not used when it is followed again.
func TestStoreTakenByOtherIssuer(t *testing.T) {
	t.Parallel()
	server, s, _ := lateStore(t, issuerX)
	if err := s.recheck(t.Context()); err != nil {
		t.Fatal(err)
	}
	g := server.Gateway()
	if err := errors.Join(g.Delete(t.Context(), store.IssuerKey), claim(t, g, issuerY)); err != nil {
		t.Fatal(err)
	}
	if err := s.recheck(t.Context()); !errors.As(err, new(*store.OtherIssuerError)) {
		t.Errorf("followed: %v", err)
	}
	if _, err := s.Get(t.Context(), "k"); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("used: %v", err)
	}
}

// A reload while the store is away does not stop one that is in use.
func TestReloadWhileStoreIsAway(t *testing.T) {
	t.Parallel()
	server, s, _ := lateStore(t, issuerX)
	if err := s.recheck(t.Context()); err != nil {
		t.Fatal(err)
	}
	server.SetDown(true)
	if err := s.begin(t.Context(), issuerX); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("reload: %v", err)
	}
	server.SetDown(false)
	if err := s.Put(t.Context(), "k", nil, time.Minute); err != nil {
		t.Error(err)
	}
}

func claim(t *testing.T, s store.Store, issuer string) error {
	_, err := store.Claim(t.Context(), s, issuer)
	return err
}
