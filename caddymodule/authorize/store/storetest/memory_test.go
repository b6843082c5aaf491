package storetest_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store/storetest"
)

func TestShared(t *testing.T) {
	t.Parallel()
	storetest.SharedSuite{New: func(_ *testing.T, kinds ...string) func() store.SharedStore {
		s := storetest.NewSharedMemory(kinds...)
		return func() store.SharedStore { return s.Gateway() }
	}}.Run(t)
}

func TestSharedSetDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := storetest.NewSharedMemory("revoked")
		a, b := s.Gateway(), s.Gateway()
		followed := make(chan error)
		go func() { followed <- a.Subscribe(t.Context(), func(store.Update) {}) }()
		synctest.Wait()
		a.SetDown(true)
		if err := <-followed; !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("following while cut off: %v", err)
		}
		put := func(g *storetest.Gateway) error { return g.Put(t.Context(), "k", nil, time.Minute) }
		if err := put(a); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("a gateway that is cut off: %v", err)
		}
		if err := put(b); err != nil {
			t.Errorf("the other: %v", err)
		}
		a.SetDown(false)
		s.SetDown(true)
		if err := put(b); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("while the store is down: %v", err)
		}
		s.SetDown(false)
		if err := put(a); err != nil {
			t.Errorf("after the end of it: %v", err)
		}
	})
}
