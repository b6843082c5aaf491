package store_test

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// A store is assigned to the first issuer that uses it, as long as that issuer starts occasionally.
func TestClaim(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := store.NewMemory(10, 0)
		for range 3 {
			if _, err := store.AssignIssuer(t.Context(), s, "https://x.example"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(9 * 365 * 24 * time.Hour)
		}
		_, err := store.AssignIssuer(t.Context(), s, "https://y.example")
		other, ok := errors.AsType[*store.IssuerMismatchError](err)
		if !ok || other.StoredIssuer != "https://x.example" || other.RequestedIssuer != "https://y.example" {
			t.Errorf("another issuer: %v", err)
		}
	})
}

// If several issuers are assigned concurrently, only one call succeeds.
func TestClaimedAtOnce(t *testing.T) {
	t.Parallel()
	s := store.NewMemory(10, 0)
	var all sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		all.Go(func() { _, errs[i] = store.AssignIssuer(t.Context(), s, "https://x.example/"+string(rune('a'+i))) })
	}
	all.Wait()
	won := 0
	for _, err := range errs {
		if _, other := errors.AsType[*store.IssuerMismatchError](err); err == nil {
			won++
		} else if !other {
			t.Error(err)
		}
	}
	if won != 1 {
		t.Errorf("%d have it", won)
	}
}

// A mark written by a newer version is neither accepted nor overwritten.
func TestClaimOfLaterVersion(t *testing.T) {
	t.Parallel()
	s := store.NewMemory(10, 0)
	if err := s.Put(t.Context(), store.IssuerKey, []byte(`{"v":99,"issuer":"https://x.example"}`), time.Hour); err != nil {
		t.Fatal(err)
	}
	if _, err := store.AssignIssuer(t.Context(), s, "https://x.example"); !errors.Is(err, store.ErrNewerVersion) {
		t.Error(err)
	}
}

// A full store can be used by its issuer, but not by another.
func TestClaimOfFullStore(t *testing.T) {
	t.Parallel()
	full := store.NewMemory(1, 0)
	if err := full.Put(t.Context(), "k", nil, time.Hour); err != nil {
		t.Fatal(err)
	}
	if _, err := store.AssignIssuer(t.Context(), full, "https://x.example"); err != nil {
		t.Errorf("without a mark: %v", err)
	}
	marked := store.NewMemory(1, 0)
	if _, err := store.AssignIssuer(t.Context(), marked, "https://x.example"); err != nil {
		t.Fatal(err)
	}
	if _, err := store.AssignIssuer(t.Context(), marked, "https://x.example"); err != nil {
		t.Errorf("with its mark: %v", err)
	}
	if _, err := store.AssignIssuer(t.Context(), marked, "https://y.example"); !errors.As(err, new(*store.IssuerMismatchError)) {
		t.Errorf("with another's: %v", err)
	}
}
