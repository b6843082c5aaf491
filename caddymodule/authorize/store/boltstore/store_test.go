package boltstore_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/bbolt"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store/boltstore"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store/storetest"
)

func newStore(t testing.TB, maxEntries int) (*boltstore.Store, string) {
	path := filepath.Join(t.TempDir(), "fhir", "store.db")
	return openStore(t, path, maxEntries), path
}

func openStore(t testing.TB, path string, maxEntries int) *boltstore.Store {
	s := boltstore.New(path, maxEntries, storetest.ReservedKind)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestStore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, maxEntries int) store.Store {
		s, _ := newStore(t, maxEntries)
		return s
	})
}

// Entries survive a restart with their lifetime. The number of entries is correct afterwards.
func TestRestart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, path := newStore(t, 2)
		put(t, s, "short", time.Minute)
		put(t, s, "long", time.Hour)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = openStore(t, path, 2)
		if err := s.Put(t.Context(), "more", nil, time.Minute); !errors.Is(err, store.ErrFull) {
			t.Errorf("a third entry: %v", err)
		}
		time.Sleep(2 * time.Minute)
		put(t, s, "more", time.Minute)
		if _, err := s.Get(t.Context(), "long"); err != nil {
			t.Error(err)
		}
	})
}

func put(t *testing.T, s *boltstore.Store, key string, ttl time.Duration) {
	t.Helper()
	if err := s.Put(t.Context(), key, []byte(key), ttl); err != nil {
		t.Fatal(err)
	}
}

// New does not access the file. On first use, the file is created, accessible only to its owner.
func TestFile(t *testing.T) {
	t.Parallel()
	s, path := newStore(t, 0)
	if _, err := os.Stat(filepath.Dir(path)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("before first use: %v", err)
	}
	put(t, s, "k", time.Minute)
	if runtime.GOOS == "windows" {
		t.Skip("no modes on Windows")
	}
	for name, want := range map[string]os.FileMode{path: 0o600, filepath.Dir(path): 0o700} {
		info, err := os.Stat(name)
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v; want %v", name, info.Mode(), err, want)
		}
	}
}

// If several goroutines use the store for the first time concurrently, only one of them opens and locks the file.
func TestOpenedAtOnce(t *testing.T) {
	t.Parallel()
	s, _ := newStore(t, 0)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if err := s.Open(); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

// Writes that wait for another write are written in one transaction.
func TestWritesShareTransactions(t *testing.T) {
	t.Parallel()
	s, path := newStore(t, 0)
	const writes = 200
	var all sync.WaitGroup
	for i := range writes {
		all.Go(func() {
			if err := s.Put(t.Context(), fmt.Sprint(i), nil, time.Minute); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.View(func(tx *bbolt.Tx) error {
		if tx.ID() >= writes {
			t.Errorf("%d transactions for %d writes", tx.ID(), writes)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

// If another process has locked the file, the error contains the file name and the remedy.
func TestLocked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, path := newStore(t, 0)
		put(t, s, "k", time.Minute)
		other, began := openStore(t, path, 0), time.Now()
		other.SetLockTimeout(time.Minute)
		err := other.Open()
		if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "stop that process") {
			t.Errorf("error %v", err)
		}
		if waited := time.Since(began).Round(time.Second); waited != time.Minute {
			t.Errorf("waited %v", waited)
		}
	})
}

// A new process waits until the previous one has completed its requests.
func TestWaitsForPredecessor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, path := newStore(t, 0)
		put(t, s, "k", time.Hour)
		time.AfterFunc(20*time.Second, func() { _ = s.Close() })
		successor := openStore(t, path, 0)
		if _, err := successor.Get(t.Context(), "k"); err != nil {
			t.Error(err)
		}
	})
}

// After Close, a request that outlasts its server cannot open the file again, which the next process uses.
func TestClosed(t *testing.T) {
	t.Parallel()
	s, path := newStore(t, 0)
	put(t, s, "k", time.Hour)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(t.Context(), "k"); !errors.Is(err, boltstore.ErrClosed) {
		t.Errorf("get: %v", err)
	}
	if err := s.Put(t.Context(), "k", nil, time.Hour); !errors.Is(err, boltstore.ErrClosed) {
		t.Errorf("put: %v", err)
	}
	put(t, openStore(t, path, 0), "k", time.Hour)
}

// Check neither creates nor modifies the file.
func TestCheck(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	for name, tt := range map[string]struct {
		content string
		isValid bool
	}{"missing": {"", true}, "damaged": {strings.Repeat("no database ", 1000), false}} {
		path := filepath.Join(folder, "folder", name)
		if tt.content != "" {
			path = filepath.Join(folder, name)
			if err := os.WriteFile(path, []byte(tt.content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := boltstore.New(path, 0).Check(); (err == nil) != tt.isValid || err != nil && !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if entries, err := os.ReadDir(folder); err != nil || len(entries) != 1 {
		t.Errorf("files %v, %v", entries, err)
	}
	s, path := newStore(t, 0)
	put(t, s, "k", time.Minute)
	other := boltstore.New(path, 0)
	other.SetLockTimeout(time.Millisecond)
	if err := other.Check(); !errors.Is(err, boltstore.ErrInUse) {
		t.Errorf("locked: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Check(); err != nil {
		t.Error(err)
	}
	if after, err := os.ReadFile(path); err != nil || string(after) != string(before) {
		t.Errorf("file modified: %v", err)
	}
}

func TestDamagedFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	if err := os.WriteFile(path, []byte(strings.Repeat("no database ", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := boltstore.New(path, 0).Open(); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("error %v", err)
	}
}

// Writes remove expired entries, so that the file does not grow without limit.
func TestSweep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, path := newStore(t, 0)
		for round := range 10 {
			for i := range 40 {
				if err := s.Put(t.Context(), fmt.Sprint(round, "-", i), make([]byte, 1024), time.Minute); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(2 * time.Minute)
		}
		if info, err := os.Stat(path); err != nil || info.Size() > 256<<10 {
			t.Errorf("400 expired entries of 1 KiB: the file has %d bytes, %v", info.Size(), err)
		}
	})
}

func BenchmarkPut(b *testing.B) {
	s, _ := newStore(b, 0)
	value := make([]byte, 600)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := s.Put(b.Context(), "refresh:a", value, time.Hour); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkGet(b *testing.B) {
	s, _ := newStore(b, 0)
	if err := s.Put(b.Context(), "refresh:a", make([]byte, 600), time.Hour); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := s.Get(b.Context(), "refresh:a"); err != nil {
			b.Fatal(err)
		}
	}
}
