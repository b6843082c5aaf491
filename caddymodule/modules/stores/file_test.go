package stores_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store/boltstore"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/modules/stores/file"
)

// A file belongs to the issuer in its mark. A file that has no mark is assigned to the first issuer that uses it.
func TestFileOfOtherIssuer(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	f := new(file.Store)
	if err := f.ResolvePath(path); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Cleanup() })
	for range 2 {
		if _, err := f.CheckIssuer(t.Context(), "https://a.example"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := f.CheckIssuer(t.Context(), "https://b.example"); err == nil || !strings.Contains(err.Error(), "https://a.example") || !strings.Contains(err.Error(), path) {
		t.Errorf("another issuer: %v", err)
	}
}

// Two configurations share an open file. It is closed when the last of them stops.
func TestFileStoreIsPooled(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	first, second, failed := new(file.Store), new(file.Store), new(file.Store)
	for _, f := range []*file.Store{first, second} {
		if err := f.ResolvePath(path); err != nil {
			t.Fatal(err)
		}
	}
	if err := first.Put(t.Context(), "k", []byte("v"), time.Hour); err != nil {
		t.Fatal(err)
	}
	for _, f := range []*file.Store{failed, first} {
		if err := f.Cleanup(); err != nil {
			t.Error(err)
		}
	}
	if v, err := second.Get(t.Context(), "k"); err != nil || string(v) != "v" {
		t.Errorf("after the first has gone: %q, %v", v, err)
	}
	if err := second.Cleanup(); err != nil {
		t.Error(err)
	}
	other := boltstore.New(path, 0)
	if err := other.Open(); err != nil {
		t.Errorf("the file is still held: %v", err)
	}
	_ = other.Close()
}

// A reload with a store file that was partly or completely damaged while in use fails with an error in the admin API.
func TestReloadWithDamagedStore(t *testing.T) {
	t.Parallel()
	for name, damaged := range map[string]func(page []byte) bool{
		"in part":    func(page []byte) bool { return bytes.Contains(page, []byte("refresh:1")) && page[8] == 2 },
		"as a whole": func([]byte) bool { return true },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "store.db")
			first, second := new(file.Store), new(file.Store)
			for _, f := range []*file.Store{first, second} {
				if err := f.ResolvePath(path); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = f.Cleanup() })
			}
			if err := first.Start(slog.New(slog.DiscardHandler)); err != nil {
				t.Fatal(err)
			}
			for n := range 40 {
				if err := first.Put(t.Context(), fmt.Sprint("refresh:", n), make([]byte, 600), time.Hour); err != nil {
					t.Fatal(err)
				}
			}
			zeroPages(t, path, damaged)
			if _, err := first.List(t.Context(), "refresh:"); err == nil {
				t.Error("a damaged file is read")
			}
			if err := second.Start(slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "restore a backup") {
				t.Error(err)
			}
		})
	}
}

// zeroPages overwrites the pages of a file for which meant returns true with zeros.
func zeroPages(t *testing.T, path string, meant func(page []byte) bool) {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for page := range slices.Chunk(content, os.Getpagesize()) {
		if meant(page) {
			clear(page)
		}
	}
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err == nil {
		_, err = file.WriteAt(content, 0)
		err = errors.Join(err, file.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}
