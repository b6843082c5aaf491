package keyring

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Keys that an operator rotates are published at once, also to gateways that share the storage,
// and sign an hour later. What was signed before stays valid for as long as it lives.
func TestRotate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		storage := new(sharedStorage)
		k, other := testKeyring(storage), testKeyring(storage)
		first := signedBy(t, k, AccessTokenAlgorithm)
		if got := signedBy(t, other, AccessTokenAlgorithm); got != first {
			t.Fatal("two gateways with keys of their own")
		}
		before := len(k.Info())
		time.Sleep(time.Second)
		if err := k.Rotate(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := signedBy(t, k, AccessTokenAlgorithm); got != first || len(k.Info()) != before+2 {
			t.Errorf("signed by another key at once, or not one new key of either kind: %v", k.Info())
		}
		time.Sleep(publishLead)
		for name, gateway := range map[string]*Keyring{"this": k, "the other": other} {
			if second := signedBy(t, gateway, AccessTokenAlgorithm); second == first || !published(t, gateway, first) {
				t.Errorf("at %s gateway: an hour later the new key does not sign, or the old one is gone", name)
			}
		}
		time.Sleep(Retention + time.Minute)
		if err := k.Rotate(t.Context()); err != nil || published(t, k, first) {
			t.Errorf("a day later the old key is still there: %v", err)
		}
	})
}

// Whoever rotates all the time makes neither a set of keys without end nor one without a key.
func TestRotateIsBounded(t *testing.T) {
	t.Parallel()
	storage := new(sharedStorage)
	var all sync.WaitGroup
	for range 2 {
		k := testKeyring(storage)
		all.Go(func() {
			for range maxKeys {
				if err := k.Rotate(t.Context()); err != nil && !errors.Is(err, ErrManyKeys) {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	k := testKeyring(storage)
	if kid := signedBy(t, k, AccessTokenAlgorithm); kid == "" || len(k.Info()) != 2*maxKeys+1 {
		t.Errorf("%d keys", len(k.Info()))
	}
}

// Keys are not replaced by a rotation while the stored ones are missing.
func TestRotateWithoutTheStoredKeys(t *testing.T) {
	t.Parallel()
	storage := new(sharedStorage)
	k := testKeyring(storage)
	first := signedBy(t, k, AccessTokenAlgorithm)
	storage.file = nil
	if err := k.Rotate(t.Context()); !errors.Is(err, errKeysGone) || signedBy(t, k, AccessTokenAlgorithm) != first {
		t.Errorf("%v", err)
	}
}

// A key that an operator retired is gone at once; a gateway that has it in memory does not put it back, and learns of that.
func TestRetire(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		storage := new(sharedStorage)
		k, other := testKeyring(storage), testKeyring(storage)
		first := signedBy(t, k, AccessTokenAlgorithm)
		signedBy(t, other, AccessTokenAlgorithm)
		if err := k.Retire(t.Context(), "none"); !errors.Is(err, ErrUnknownKey) {
			t.Errorf("a key that there is not: %v", err)
		}
		if err := k.Retire(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		if err := other.Refresh(t.Context()); err != nil {
			t.Error(err)
		}
		for name, gateway := range map[string]*Keyring{"this": k, "the other": other, "a new": testKeyring(storage)} {
			if second := signedBy(t, gateway, AccessTokenAlgorithm); second == first || published(t, gateway, first) {
				t.Errorf("%s gateway still has the key", name)
			}
		}
		if second, third := signedBy(t, k, AccessTokenAlgorithm), signedBy(t, other, AccessTokenAlgorithm); second != third {
			t.Error("two gateways with keys of their own")
		}
		time.Sleep(Retention + time.Minute)
		if err := k.Rotate(t.Context()); err != nil || strings.Contains(string(storage.file), first) {
			t.Errorf("it is remembered for ever: %v", err)
		}
	})
}
