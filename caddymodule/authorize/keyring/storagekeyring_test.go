package keyring_test

import (
	"errors"
	"log/slog"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
)

func newKeyring(storage keyring.Storage) *keyring.Keyring {
	return keyring.New(storage, "keys.json", slog.New(slog.DiscardHandler))
}

// For years, stored data can be unsealed by any gateway with the same storage, although the other keys are rotated.
func TestStoredDataOpensForYears(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		storage := new(providertest.Storage)
		sealed, err := newKeyring(storage).SealStored(t.Context(), "text", "alice")
		if err != nil {
			t.Fatal(err)
		}
		for range 8 {
			time.Sleep(91 * 24 * time.Hour)
			if err := newKeyring(storage).Refresh(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if text, err := newKeyring(storage).UnsealStored(t.Context(), sealed, "alice"); text != "text" || err != nil {
			t.Errorf("%q, %v", text, err)
		}
	})
}

func TestStoredDataIsBound(t *testing.T) {
	t.Parallel()
	storage := new(providertest.Storage)
	ring := newKeyring(storage)
	sealed, err := ring.SealStored(t.Context(), "text", "alice")
	if err != nil {
		t.Fatal(err)
	}
	ofBrowser, err := ring.Seal(t.Context(), "text", "alice")
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct{ sealed, binding string }{
		"other binding":        {sealed, "bob"},
		"sealed for a browser": {ofBrowser, "alice"},
		"altered text":         {sealed[:len(sealed)-2] + "AA", "alice"},
		"unknown key":          {"other" + sealed, "alice"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if text, err := ring.UnsealStored(t.Context(), tt.sealed, tt.binding); !errors.Is(err, keyring.ErrUnsealFailed) {
				t.Errorf("%q, %v", text, err)
			}
		})
	}
}

// A damaged storage key is not replaced, because all stored data would become unreadable.
func TestDamagedStorageKeyStays(t *testing.T) {
	t.Parallel()
	storage := new(providertest.Storage)
	if _, err := newKeyring(storage).SealStored(t.Context(), "text", ""); err != nil {
		t.Fatal(err)
	}
	for name := range storage.Files {
		storage.Files[name] = []byte("{")
	}
	before := maps.Clone(storage.Files)
	if sealed, err := newKeyring(storage).SealStored(t.Context(), "text", ""); err == nil {
		t.Errorf("sealed as %q", sealed)
	}
	for name, file := range storage.Files {
		if string(file) != string(before[name]) {
			t.Errorf("%s was written: %s", name, file)
		}
	}
}
