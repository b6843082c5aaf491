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

const issuerA, issuerB = "https://a.example", "https://b.example"

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

// A store that turns out to be another issuer's is not used, which is logged once; and is used when it has been mended.
func TestStoreOfOtherIssuerIsFoundLate(t *testing.T) {
	t.Parallel()
	server, s, log := lateStore(t, issuerA)
	if _, err := store.Claim(t.Context(), server.Gateway(), issuerB); err != nil {
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

// A store that lost its data, and that another issuer took since, is not used when it is followed again.
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
	server, s, _ := lateStore(t, issuerA)
	if err := s.recheck(t.Context()); err != nil {
		t.Fatal(err)
	}
	server.SetDown(true)
	if err := s.begin(t.Context(), issuerA); !errors.Is(err, store.ErrUnavailable) {
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
